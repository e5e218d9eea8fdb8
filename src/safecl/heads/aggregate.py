"""Aggregation of two learners: of their logits (N, C) by entropy, sum or maximum, or of their features."""

import torch
import torch.nn.functional as F
from torch import Tensor

EQUALLY_GOOD, STEEPNESS = 0.6, 8.0  # weight of the fast learner where errors are equal, and how it grows with its lead


def entropy(logits: Tensor) -> Tensor:
    """H = −Σ_i p_i log p_i of p = softmax(z): (N, C) → (N,)."""
    log_p = logits.log_softmax(dim=1)
    return -(log_p.exp() * log_p).sum(dim=1)


def weights(slow: Tensor, fast: Tensor, gamma: float = 1.0) -> Tensor:
    """[α_slow, α_fast] = softmax([−γ H_slow, −γ H_fast]): (N, 2)."""
    return torch.softmax(-gamma * torch.stack([entropy(slow), entropy(fast)], dim=1), dim=1)


def lead_weight(errors: Tensor) -> Tensor:
    """α_fast from the squared errors (2,) of the slow and the fast learner on the same pictures: ().

    The fast one, who has seen the latest classes, counts a little more while both are as good.
    """
    slow, fast = errors
    lead = (slow - fast) / (slow + fast).clamp(min=torch.finfo(errors.dtype).tiny)
    weight: Tensor = (EQUALLY_GOOD + STEEPNESS * lead).clamp(0, 1)
    return weight


def concatenate(slow: Tensor, fast: Tensor) -> Tensor:
    """Of features (N, d): [φ_slow; φ_fast], each on the unit sphere: (N, 2d)."""
    return torch.cat([F.normalize(slow, dim=1), F.normalize(fast, dim=1)], dim=1)


def aggregate(slow: Tensor, fast: Tensor, rule: str, gamma: float = 1.0) -> Tensor:
    """Both learners' logits as one, by "entropy", Eq. (11): z = α_slow z_slow + α_fast z_fast, or "add", or "max"."""
    if rule == "entropy":
        alpha = weights(slow, fast, gamma)
        return alpha[:, :1] * slow + alpha[:, 1:] * fast
    return slow + fast if rule == "add" else torch.maximum(slow, fast)
