"""The transfer loss of the first session, on the cross-correlation of the slow learner with the
pre-trained model.
"""

from typing import Literal, TypeAlias

import torch.nn.functional as F
from torch import Tensor

Reduction: TypeAlias = Literal["mean", "sum"]


def cross_correlation(ptm: Tensor, slow: Tensor) -> Tensor:
    """M of Eq. (1): M_ij = 1/N Σ_k [φ_PTM(x_k)]_i [φ_slow(x_k)]_j of features (N, d) on the unit
    sphere; (d, d).
    """
    return F.normalize(ptm, dim=1).T @ F.normalize(slow, dim=1) / len(ptm)


def diagonal(correlation: Tensor, reduction: Reduction = "mean") -> Tensor:
    """L_diag of Eq. (2): 1/d Σ_i (1 − M_ii)²; with ``sum`` without the 1/d."""
    terms = (1 - correlation.diagonal()).square()
    return terms.mean() if reduction == "mean" else terms.sum()


def redundancy(correlation: Tensor, reduction: Reduction = "mean") -> Tensor:
    """L_rdn of Eq. (3): 1/(d(d−1)) Σ_{i≠j} M_ij²; with ``sum`` without the factor."""
    d = len(correlation)
    total = correlation.square().sum() - correlation.diagonal().square().sum()
    return total / max(d * (d - 1), 1) if reduction == "mean" else total
