"""Limit the gradient of an auxiliary loss to a share of that of the main loss, at any scale of the
features.
"""

import torch
from torch import Tensor


def limited(term: Tensor, main: Tensor, features: Tensor, share: float) -> Tensor:
    """``term``, scaled down where its gradient by ``features`` (N, d) exceeds ``share`` of the norm
    of ``main``'s.

    The scale is a constant to the optimiser and at most 1, so a term near its minimum fades. Scaled
    up to its share, a transfer term would hold an adapter at its start, which is the PTM.
    """
    if not term.requires_grad:
        return term
    (pull,) = torch.autograd.grad(term, features, retain_graph=True)
    (push,) = torch.autograd.grad(main, features, retain_graph=True)
    scale: Tensor = share * push.norm() / pull.norm().clamp(min=1e-30)
    return term * scale.clamp(max=1.0).detach()
