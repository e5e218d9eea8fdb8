"""Hold an auxiliary loss to a share of the main one, whatever the scale of the features."""

import torch
from torch import Tensor


def balanced(term: Tensor, main: Tensor, features: Tensor, share: float) -> Tensor:
    """``term`` scaled so that its gradient by ``features`` (N, d) has ``share`` of the norm of that of ``main``.

    The scale is a constant to the optimiser. A term that has no gradient, because it is already met, stays zero.
    """
    if not term.requires_grad:
        return term
    (pull,) = torch.autograd.grad(term, features, retain_graph=True)
    (push,) = torch.autograd.grad(main, features, retain_graph=True)
    scale = share * push.norm() / pull.norm().clamp(min=1e-12)
    return term * scale.detach()
