"""Families of networks: what may be read of one, and where something may be put into it."""
