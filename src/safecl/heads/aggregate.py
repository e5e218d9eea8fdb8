"""Aggregation of the logits of two learners."""

from typing import Literal, TypeAlias

import torch
from torch import Tensor

Aggregation: TypeAlias = Literal["entropy", "add", "max", "concat"]


def entropy(logits: Tensor) -> Tensor:
    """H = −Σ_i p_i log p_i of p = softmax(z): (N, C) → (N,)."""
    log_p = logits.log_softmax(dim=1)
    return -(log_p.exp() * log_p).sum(dim=1)


def weights(slow: Tensor, fast: Tensor, gamma: float = 1.0) -> Tensor:
    """[α_slow, α_fast] = softmax([−γ H_slow, −γ H_fast]): (N, 2)."""
    return torch.softmax(-gamma * torch.stack([entropy(slow), entropy(fast)], dim=1), dim=1)


def aggregate(slow: Tensor, fast: Tensor, rule: Literal["entropy", "add", "max"], gamma: float = 1.0) -> Tensor:
    """Eq. (11): z = α_slow z_slow + α_fast z_fast; or the sum, or the class-wise maximum. Logits (N, C)."""
    if rule == "add":
        return slow + fast
    if rule == "max":
        return torch.maximum(slow, fast)
    alpha = weights(slow, fast, gamma)
    return alpha[:, :1] * slow + alpha[:, 1:] * fast
