"""Heads, which turn features into logits (cosine, linear, ridge), aggregation of logits, Gaussians
of the classes.
"""
