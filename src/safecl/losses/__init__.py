"""The losses: one function for each equation of the paper, of its alternatives, and of the methods beside it."""

from safecl.losses.alignment import alignment
from safecl.losses.balance import limited
from safecl.losses.cosface import cosface
from safecl.losses.crossing import crossing
from safecl.losses.distillation import covariance_alignment, feature_alignment, logit_alignment
from safecl.losses.local import local_cross_entropy
from safecl.losses.orthogonality import orthogonality
from safecl.losses.transfer import cross_correlation, diagonal, redundancy

__all__ = [
    "alignment",
    "cosface",
    "covariance_alignment",
    "cross_correlation",
    "crossing",
    "diagonal",
    "feature_alignment",
    "limited",
    "local_cross_entropy",
    "logit_alignment",
    "orthogonality",
    "redundancy",
]
