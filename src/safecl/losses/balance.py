"""Hold an auxiliary loss to a share of the main one, whatever the scale of the features."""

import torch
from torch import Tensor


def limited(term: Tensor, main: Tensor, features: Tensor, share: float) -> Tensor:
    """``term``, scaled down where its gradient by ``features`` (N, d) exceeds ``share`` of the norm of ``main``'s.

    The scale is a constant to the optimiser and never above 1: a term that is nearly met must fade, not be blown up
    to its share. Near the PTM, where an adapter starts, that would nail the learner to it.
    """
    if not term.requires_grad:
        return term
    (pull,) = torch.autograd.grad(term, features, retain_graph=True)
    (push,) = torch.autograd.grad(main, features, retain_graph=True)
    scale: Tensor = share * push.norm() / pull.norm().clamp(min=1e-30)
    return term * scale.clamp(max=1.0).detach()
