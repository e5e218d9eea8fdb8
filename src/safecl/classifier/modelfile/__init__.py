"""The model file: what it holds, how it is read and written. It decides nothing."""
