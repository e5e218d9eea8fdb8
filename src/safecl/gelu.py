"""GELU with a backward pass that is as fast on a CPU as its forward pass."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class Gelu(nn.Module):
    """Exact GELU. torch's own gradient is several times slower than this one on CPUs without its vector code."""

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type == "cpu" and x.requires_grad and torch.is_grad_enabled():
            y: Tensor = _Gelu.apply(x)  # type: ignore[no-untyped-call]  # torch's own
            return y
        return F.gelu(x)


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        context.save_for_backward(x)
        return F.gelu(x)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]  # torch's own
    def backward(context: Any, g: Tensor) -> Tensor:
        (x,) = context.saved_tensors
        return gelu_gradient(g, x)


def gelu_gradient(g: Tensor, x: Tensor) -> Tensor:
    """g · (Φ(x) + x φ(x)), with Φ and φ of the standard normal distribution."""
    if x.device.type != "cpu":
        return torch.ops.aten.gelu_backward(g, x)  # type: ignore[no-any-return]
    below = x.mul(math.sqrt(0.5)).erf_().add_(1).mul_(0.5)
    density = x.square().mul_(-0.5).exp_().mul_(1 / math.sqrt(2 * math.pi))
    return below.addcmul_(x, density).mul_(g)


def use_gelu(network: nn.Module) -> None:
    """Put it in the place of torch's own, wherever ``network`` has that."""
    for owner in list(network.modules()):
        for name, child in list(owner.named_children()):
            if type(child) is nn.GELU and child.approximate == "none":
                setattr(owner, name, Gelu())
