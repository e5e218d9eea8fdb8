"""Losses on cosines with a margin: of features and classes (CosFace), and of pairs of features (RSIAT)."""

import torch
import torch.nn.functional as F
from torch import Tensor


def cosface(cosines: Tensor, targets: Tensor, scale: float, margin: float) -> Tensor:
    """−log e^{s(cos_y − m)} / (e^{s(cos_y − m)} + Σ_{j≠y} e^{s cos_j}), a mean over (N, K) cosines."""
    right = targets[:, None] == torch.arange(cosines.shape[1], device=cosines.device)
    return F.cross_entropy(scale * (cosines - margin * right), targets)


def pairs(features: Tensor, targets: Tensor, far: float, margin: float) -> Tensor:
    """Mean of relu(1 − cos) over pairs of one class, and α = ``far`` times that of relu(cos − δ) over pairs of two."""
    f, same = F.normalize(features, dim=1), targets[:, None] == targets
    cosines, other, near = f @ f.T, ~same, same.fill_diagonal_(False)
    attracted = ((1 - cosines).relu() * near).sum() / near.sum().clamp(min=1)
    return attracted + far * ((cosines - margin).relu() * other).sum() / other.sum().clamp(min=1)
