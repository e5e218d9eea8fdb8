"""The loss on cosines of pairs of features, with a margin (RSIAT)."""

import torch.nn.functional as F
from torch import Tensor


def pairs(features: Tensor, targets: Tensor, far: float, margin: float) -> Tensor:
    """Mean of relu(1 − cos) over pairs of one class, and α = ``far`` times that of relu(cos − δ)
    over pairs of two.
    """
    f = F.normalize(features, dim=1)
    same = targets[:, None] == targets
    cosines = f @ f.T
    other = ~same
    near = same.fill_diagonal_(False)
    attracted = ((1 - cosines).relu() * near).sum() / near.sum().clamp(min=1)
    return attracted + far * ((cosines - margin).relu() * other).sum() / other.sum().clamp(min=1)
