"""Layers of a frozen ViT that compute what timm's and torch's compute, in less time."""

from typing import Any

import torch
import torch.nn.functional as F
from timm.layers.attention import Attention as TimmAttention
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from safecl.backbone.kernels import gelu_gradient, layer_norm, layer_norm_gradient


def use_layers(vit: VisionTransformer) -> None:
    """Put them in the place of timm's and torch's own, wherever those do no more than these."""
    for owner in list(vit.modules()):
        for name, child in list(owner.named_children()):
            if type(child) is TimmAttention and getattr(child, "gate", None) is None:
                setattr(owner, name, Attention(child))
            elif type(child) is nn.GELU and child.approximate == "none":
                setattr(owner, name, Gelu())
            elif isinstance(child, nn.LayerNorm) and child.bias is not None and len(child.normalized_shape) == 1:
                setattr(owner, name, Norm(child))


class Attention(nn.Module):
    """The modules of a timm attention under their own names, where a PET finds them.

    timm puts query, key and value first and the heads before the tokens, so that their gradients have to be put
    together and turned around again. Here they stay where the projection has them.
    """

    def __init__(self, attention: TimmAttention) -> None:
        super().__init__()
        self.num_heads, self.head_dim = attention.num_heads, attention.head_dim
        self.qkv, self.q_norm, self.k_norm = attention.qkv, attention.q_norm, attention.k_norm
        self.norm, self.proj = getattr(attention, "norm", nn.Identity()), attention.proj

    def forward(self, x: Tensor, queries: int | None = None, **nothing: Any) -> Tensor:
        """Tokens (N, L, d), of which the first ``queries`` (all if not given) ask: (N, queries, d)."""
        q, k, v = self.qkv(x).unflatten(2, (3, self.num_heads, self.head_dim)).unbind(2)
        q, k = self.q_norm(q[:, :queries]), self.k_norm(k)
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        mixed: Tensor = self.proj(self.norm(y.transpose(1, 2).flatten(2)))
        return mixed


class Gelu(nn.Module):
    """Exact GELU, with a gradient that is as fast on a CPU as itself."""

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type != "cpu" or not x.requires_grad or not torch.is_grad_enabled():
            return F.gelu(x)
        y: Tensor = _Gelu.apply(x)  # type: ignore[no-untyped-call]  # torch's own
        return y


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        context.save_for_backward(x)
        return F.gelu(x)

    @staticmethod
    @once_differentiable
    def backward(context: Any, g: Tensor) -> Tensor:
        return gelu_gradient(g, *context.saved_tensors)


class Norm(nn.LayerNorm):
    """A layer norm whose weights are never trained."""

    def __init__(self, norm: nn.LayerNorm) -> None:
        super().__init__(list(norm.normalized_shape), norm.eps, device="meta")
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
    @once_differentiable
    def backward(context: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        return layer_norm_gradient(g, *context.saved_tensors), None, None, None
