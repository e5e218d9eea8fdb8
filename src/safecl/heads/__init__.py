"""What turns features into logits: trained cosine and linear heads, a training-free ridge head, their aggregation."""

from safecl.heads.aggregate import aggregate
from safecl.heads.cosine import CosineHead
from safecl.heads.linear import LinearHead
from safecl.heads.ridge import RidgeHead, RidgeSettings

__all__ = ["CosineHead", "LinearHead", "RidgeHead", "RidgeSettings", "aggregate"]
