"""The paper's tables and figures: what they are made of is data in ``targets`` and ``scales``."""
