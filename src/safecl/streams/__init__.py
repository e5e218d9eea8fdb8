"""Streams of sessions: the embedded one, published datasets, and a user's own pictures."""
