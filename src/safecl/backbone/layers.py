"""Layers of a frozen ViT that compute what timm's and torch's compute, in less time."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from timm.layers.attention import Attention as TimmAttention
from timm.layers.mlp import Mlp as TimmMlp
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.attention import SDPBackend, sdpa_kernel

from safecl.backbone.kernels import gelu_gradient, layer_norm, layer_norm_gradient

NOT_CUDNN = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
# torch chooses for the whole process: two threads at once would not put back what they found
CHOOSING = Lock()


def use_layers(vit: VisionTransformer) -> None:
    """Replace timm's and torch's layers in ``vit`` by those of this module, where these compute the
    same.
    """
    for owner in list(vit.modules()):
        for name, child in list(owner.named_children()):
            if type(child) is TimmAttention and getattr(child, "gate", None) is None:
                setattr(owner, name, Attention(child))
            elif type(child) is nn.GELU and child.approximate == "none":
                setattr(owner, name, Gelu())
            elif (
                isinstance(child, nn.LayerNorm)
                and child.bias is not None
                and len(child.normalized_shape) == 1
            ):
                setattr(owner, name, Norm(child))
            elif type(child) is TimmMlp and _is_plain(child):
                setattr(owner, name, Mlp(child.fc1, child.fc2))


class Watched(NamedTuple):
    """One forward pass: by block, the values (N, L, heads, head_dim) that its attention reads of
    the tokens.

    ``first``: the position of the first patch among the tokens.
    """

    values: list[Tensor]
    first: int
    grid: tuple[int, int]


_watched: ContextVar[list[Watched] | None] = ContextVar("watched", default=None)


@contextmanager
def watching() -> Iterator[list[Watched]]:
    """The forward passes of this thread meanwhile; gradients can be taken of what is watched."""
    found: list[Watched] = []
    before = _watched.set(found)
    try:
        with torch.enable_grad():
            yield found
    finally:
        _watched.reset(before)


def begin_pass(tokens: Tensor, first: int, grid: tuple[int, int]) -> Tensor:
    """The ``tokens`` (N, L, d) of a forward pass; with a gradient if somebody watches."""
    watched = _watched.get()
    if watched is None:
        return tokens
    watched.append(Watched([], first, grid))
    return tokens.detach().requires_grad_()


# keys and values: (N, P, d) each, or (P, d) for all pictures
Prefix: TypeAlias = tuple[Tensor, Tensor]


class Attention(nn.Module):
    """timm's attention, its modules under their own names, whose gradient of the qkv projection
    needs no copy.
    """

    num_heads: int
    head_dim: int
    qkv: nn.Module
    q_norm: nn.Module
    k_norm: nn.Module
    proj: nn.Module

    def __init__(self, attention: "TimmAttention | Attention") -> None:
        super().__init__()
        self.num_heads = attention.num_heads
        self.head_dim = attention.head_dim
        self.qkv = attention.qkv
        self.q_norm = attention.q_norm
        self.k_norm = attention.k_norm
        self.norm = getattr(attention, "norm", nn.Identity())
        self.proj = attention.proj

    def forward(
        self,
        x: Tensor,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        queries: int | None = None,
        prefix: Prefix | None = None,
    ) -> Tensor:
        """Tokens (N, L, d) → (N, queries, d): the first ``queries``, or all, attend to ``prefix``
        and all L.
        """
        if attn_mask is not None or is_causal:  # which timm's blocks hand on
            raise ValueError("this attention takes no mask")
        q, k, v = self.qkv(x).unflatten(2, (3, self.num_heads, self.head_dim)).unbind(2)
        q = self.q_norm(q[:, :queries])
        k = self.k_norm(k)
        if (watched := _watched.get()) is not None:
            watched[-1].values.append(v)
        if prefix is not None:
            k, v = (_prepend(first, rest) for first, rest in zip(prefix, (k, v), strict=True))
        y = self.attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        mixed: Tensor = self.proj(self.norm(y.transpose(1, 2).flatten(2)))
        return mixed

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Queries (N, heads, Q, head_dim), keys and values (N, heads, L, head_dim) → (N, heads, Q,
        head_dim).
        """
        # What cuDNN gives for one query differs in its last bits from one call to the next.
        if not q.is_cuda or q.shape[2] > 1:
            return F.scaled_dot_product_attention(q, k, v)
        with CHOOSING, sdpa_kernel(NOT_CUDNN):
            return F.scaled_dot_product_attention(q, k, v)


def _prepend(prefix: Tensor, x: Tensor) -> Tensor:
    """(N, P, d) or (P, d), and (N, L, heads, head_dim) → (N, P + L, heads, head_dim)."""
    heads = prefix.reshape(*prefix.shape[:-1], *x.shape[2:]).to(x.dtype)
    return torch.cat([heads.expand(x.shape[0], -1, -1, -1), x], dim=1)


class Gelu(nn.Module):
    """Exact GELU, with a gradient that is fast on every CPU."""

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type != "cpu" or not x.requires_grad or not torch.is_grad_enabled():
            return F.gelu(x)
        y: Tensor = _Gelu.apply(x)  # type: ignore[no-untyped-call]  # torch's own
        return y


class Mlp(nn.Module):
    """timm's MLP where it is plain: its linear layers, under their own names, and an exact GELU
    between them.
    """

    def __init__(self, fc1: Any, fc2: Any) -> None:
        super().__init__()
        self.fc1 = fc1
        self.act = Gelu()
        self.fc2 = fc2

    def forward(self, x: Tensor) -> Tensor:
        if x.is_cuda and not torch.is_grad_enabled() and self.fc1.weight.dtype == torch.bfloat16:
            # The product ends with GELU by tanh, which is off by less than bfloat16 rounds the
            # activations.
            rows = torch._addmm_activation(
                self.fc1.bias, x.flatten(0, -2), self.fc1.weight.T, use_gelu=True
            )
            hidden = rows.view(*x.shape[:-1], -1)
        else:
            hidden = self.act(self.fc1(x))
        y: Tensor = self.fc2(hidden)
        return y


def _is_plain(mlp: TimmMlp) -> bool:
    linear = all(
        isinstance(each, nn.Linear) and each.bias is not None for each in (mlp.fc1, mlp.fc2)
    )
    exact = type(mlp.act) is nn.GELU and mlp.act.approximate == "none"
    return (
        linear
        and exact
        and isinstance(mlp.norm, nn.Identity)
        and not mlp.drop1.p
        and not mlp.drop2.p
    )


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
    """A layer norm that computes no gradient of frozen weights, and on CUDA takes weights of a
    higher precision.
    """

    def __init__(self, norm: nn.LayerNorm) -> None:
        super().__init__(list(norm.normalized_shape), norm.eps, device="meta")
        self.weight = norm.weight
        self.bias = norm.bias

    def forward(self, x: Tensor) -> Tensor:
        if not x.is_cuda or self.weight.requires_grad:
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
