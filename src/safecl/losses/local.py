"""Cross-entropy and CosFace over the classes of one session: the logits of all others are left out (masked to −∞)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from safecl.losses.cosface import cosface


def local_cosface(logits: Tensor, targets: Tensor, current: Tensor, scale: float, margin: float) -> Tensor:
    """CosFace of scaled cosines (N, C) and class indices (N,) over the columns ``current`` (K,), which are sorted."""
    return cosface(logits[:, current] / scale, torch.searchsorted(current, targets), scale, margin)


def local_cross_entropy(logits: Tensor, targets: Tensor, current: Tensor) -> Tensor:
    """Mean CE of logits (N, C) and class indices (N,) over the columns ``current`` (K,), which are sorted."""
    return F.cross_entropy(logits[:, current], torch.searchsorted(current, targets))
