"""The paper's tables and figures: described by the YAML files in ``targets`` and ``scales``."""
