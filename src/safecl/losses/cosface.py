"""CosFace: cross-entropy with a margin on the cosine of the right class."""

import torch
import torch.nn.functional as F
from torch import Tensor


def cosface(cosines: Tensor, targets: Tensor, scale: float, margin: float) -> Tensor:
    """−log e^{s(cos_y − m)} / (e^{s(cos_y − m)} + Σ_{j≠y} e^{s cos_j}), a mean over (N, K) cosines."""
    right = targets[:, None] == torch.arange(cosines.shape[1], device=cosines.device)
    return F.cross_entropy(scale * (cosines - margin * right), targets)
