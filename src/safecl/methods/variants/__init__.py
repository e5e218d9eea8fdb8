"""What the released code and the paper's ablations do otherwise than Algorithm 1 as printed."""
