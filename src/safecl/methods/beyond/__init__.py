"""What SAFE has beyond its paper: a file a decision, each switched on by one setting."""
