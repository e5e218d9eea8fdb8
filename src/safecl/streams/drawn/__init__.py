"""Pictures that are drawn, not read: the embedded stream of characters."""
