"""Many runs: planned, run in processes or on a cluster, and put into one table."""
