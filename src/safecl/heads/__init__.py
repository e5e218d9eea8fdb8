"""Heads, which turn features into logits (cosine, linear, ridge), aggregation of logits, Gaussians of the classes."""

from safecl.heads.aggregate import aggregate
from safecl.heads.cosine import CosineHead
from safecl.heads.gaussians import ClassGaussians
from safecl.heads.linear import LinearHead
from safecl.heads.ridge import RidgeHead, RidgeSettings
from safecl.heads.statistics import require_memory

__all__ = ["ClassGaussians", "CosineHead", "LinearHead", "RidgeHead", "RidgeSettings", "aggregate", "require_memory"]
