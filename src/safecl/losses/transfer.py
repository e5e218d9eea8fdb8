"""The transfer loss of the first session, on the cross-correlation of the slow learner with the pre-trained model."""

from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

Normalisation: TypeAlias = Literal["l2", "batch"]
Reduction: TypeAlias = Literal["mean", "sum"]


def cross_correlation(ptm: Tensor, slow: Tensor, normalisation: Normalisation = "l2") -> Tensor:
    """M of Eq. (1): M_ij = 1/N Σ_k [φ_PTM(x_k)]_i [φ_slow(x_k)]_j; (d, d).

    ``ptm``, ``slow``: features (N, d). ``l2`` puts every row on the unit sphere, as the paper's footnote says;
    ``batch`` standardises every channel over the batch instead, so that M_ij is a correlation coefficient.
    """
    if normalisation == "l2":
        ptm, slow = F.normalize(ptm, dim=1), F.normalize(slow, dim=1)
    else:
        ptm, slow = standardise(ptm), standardise(slow)
    return ptm.T @ slow / len(ptm)


def diagonal(correlation: Tensor, reduction: Reduction = "mean") -> Tensor:
    """L_diag of Eq. (2): 1/d Σ_i (1 − M_ii)²; with ``sum`` without the 1/d."""
    terms = (1 - correlation.diagonal()).square()
    return terms.mean() if reduction == "mean" else terms.sum()


def redundancy(correlation: Tensor, reduction: Reduction = "mean") -> Tensor:
    """L_rdn of Eq. (3): 1/(d(d−1)) Σ_{i≠j} M_ij²; with ``sum`` without the factor."""
    d = len(correlation)
    total = correlation.square().sum() - correlation.diagonal().square().sum()
    return total / max(d * (d - 1), 1) if reduction == "mean" else total


def standardise(features: Tensor, eps: float = 1e-6) -> Tensor:
    """Every channel with zero mean and unit variance over the batch; a batch of one becomes zeros."""
    centred = features - features.mean(dim=0)
    variance: Tensor = centred.square().mean(dim=0)
    return centred / torch.sqrt(variance + eps)
