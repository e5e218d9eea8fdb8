"""Methods put through what is harder than ten equal sessions, in one table."""
