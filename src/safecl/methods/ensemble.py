"""What combines the voices of an answer: their logits (N, C) by entropy, by errors, as a sum or as
a maximum; or the features of several networks, before one head.

A voice is an ``Expert`` (see ``experts.py``).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

EQUALLY_GOOD = 0.6  # weight of the fast learner where both make the same errors
STEEPNESS = 8.0  # how its weight grows with its lead over the other


def entropy(logits: Tensor) -> Tensor:
    """H = −Σ_i p_i log p_i of p = softmax(z): (N, C) → (N,)."""
    log_p = logits.log_softmax(dim=1)
    return -(log_p.exp() * log_p).sum(dim=1)


def weights(slow: Tensor, fast: Tensor, gamma: float = 1.0) -> Tensor:
    """[α_slow, α_fast] = softmax([−γ H_slow, −γ H_fast]): (N, 2)."""
    return torch.softmax(-gamma * torch.stack([entropy(slow), entropy(fast)], dim=1), dim=1)


def by_entropy(slow: Tensor, fast: Tensor, gamma: float = 1.0) -> Tensor:
    """z = α_slow z_slow + α_fast z_fast, Eq. (11): (N, C)."""
    alpha = weights(slow, fast, gamma)
    return alpha[:, :1] * slow + alpha[:, 1:] * fast


def surest(each: list[Tensor]) -> Tensor:
    """Which of several voices has the least entropy: (N,)."""
    return torch.stack([entropy(z) for z in each]).argmin(dim=0)


def lead_weight(errors: Tensor) -> Tensor:
    """α_fast from the squared errors (2,) of the slow and the fast learner on the same pictures:
    ().

    The fast one, which has seen the latest classes, counts a little more while both are as good.
    """
    slow, fast = errors
    lead = (slow - fast) / (slow + fast).clamp(min=torch.finfo(errors.dtype).tiny)
    weight: Tensor = (EQUALLY_GOOD + STEEPNESS * lead).clamp(0, 1)
    return weight


def side_by_side(*features: Tensor) -> Tensor:
    """Features (N, d) of several networks as one: (N, Σ d)."""
    return torch.cat(features, dim=1)


def concatenate(*features: Tensor) -> Tensor:
    """Features (N, d) of several networks as one, each of unit length: (N, Σ d)."""
    return torch.cat([F.normalize(each, dim=1) for each in features], dim=1)
