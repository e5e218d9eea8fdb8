"""Layer normalisation with frozen weights."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from safecl.kernels import layer_norm, layer_norm_gradient


class Norm(nn.LayerNorm):
    """A layer norm whose weights are never trained; on CUDA it has a faster kernel."""

    def __init__(self, norm: nn.LayerNorm) -> None:
        super().__init__(norm.normalized_shape, norm.eps, device="meta")
        self.weight, self.bias = norm.weight, norm.bias

    def forward(self, x: Tensor) -> Tensor:
        if not x.is_cuda:
            return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        y: Tensor = _Norm.apply(x, self.weight, self.bias, self.eps)  # type: ignore[no-untyped-call]  # torch's own
        return y


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        y, mean, spread = layer_norm(x, weight, bias, eps)
        context.save_for_backward(x, mean, spread, weight, bias)
        return y

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]  # torch's own
    def backward(context: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        return layer_norm_gradient(g, *context.saved_tensors), None, None, None


def use_norm(network: nn.Module) -> None:
    """Put it in the place of torch's own, wherever ``network`` has that."""
    for owner in list(network.modules()):
        for name, child in list(owner.named_children()):
            plain = isinstance(child, nn.LayerNorm) and child.elementwise_affine and len(child.normalized_shape) == 1
            if plain and child.bias is not None:
                setattr(owner, name, Norm(child))
