"""What turns features into logits: a trained cosine head, a training-free ridge head, and their aggregation."""

from safecl.heads.aggregate import aggregate
from safecl.heads.cosine import CosineHead
from safecl.heads.ridge import RidgeHead, RidgeSettings

__all__ = ["CosineHead", "RidgeHead", "RidgeSettings", "aggregate"]
