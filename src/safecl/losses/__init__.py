"""The losses: one function for each equation of the paper, and for each of its alternatives."""

from safecl.losses.alignment import alignment
from safecl.losses.balance import limited
from safecl.losses.crossing import crossing
from safecl.losses.distillation import covariance_alignment, feature_alignment, logit_alignment
from safecl.losses.transfer import cross_correlation, diagonal, redundancy

__all__ = [
    "alignment",
    "covariance_alignment",
    "cross_correlation",
    "crossing",
    "diagonal",
    "feature_alignment",
    "limited",
    "logit_alignment",
    "redundancy",
]
