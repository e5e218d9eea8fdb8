"""Cross-entropy and CosFace over the classes of one session: the logits of all others are left out
(masked to −∞).
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def local_cosface(
    logits: Tensor, targets: Tensor, current: Tensor, scale: float, margin: float
) -> Tensor:
    """−log e^{s(cos_y − m)} / (e^{s(cos_y − m)} + Σ_{j≠y} e^{s cos_j}), a mean over N; j over
    ``current`` (K,), sorted.

    ``logits`` (N, C): s times the cosines. ``targets`` (N,): class indices.
    """
    margins = scale * margin * (targets[:, None] == current)
    return F.cross_entropy(logits[:, current] - margins, torch.searchsorted(current, targets))


def local_cross_entropy(logits: Tensor, targets: Tensor, current: Tensor) -> Tensor:
    """Mean CE of logits (N, C) and class indices (N,) over the columns ``current`` (K,), which are
    sorted.
    """
    return F.cross_entropy(logits[:, current], torch.searchsorted(current, targets))
