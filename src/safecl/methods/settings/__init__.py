"""The settings of every method, a file each. Nothing heavy is imported."""
