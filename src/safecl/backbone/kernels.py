"""Memory-bound passes of the network: plain torch, which is the definition, and a Triton kernel on
CUDA.
"""

import math
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# u is read back from a rounded z = γ u + β as (z - β) / γ only where |γ| ≥ MIN_SCALE and |β| ≤
# MAX_RATIO |γ|. There the rounding of z adds no more than that of a number of size |u| + MAX_RATIO.
MIN_SCALE = 1e-6
MAX_RATIO = 8.0
# else torch's gradient of GELU takes several times ours
VECTORS = torch.backends.cpu.get_cpu_capability() != "DEFAULT"


@cache
def triton() -> Any:
    """The kernels of Triton, which is slow to import; None without it."""
    try:
        from safecl.backbone import triton_kernels
    except ImportError:
        return None
    return triton_kernels


def fast_for(x: Tensor) -> Any:
    """Those for a tensor that lies on a GPU. Nobody else asks for a GPU: the children of a process
    that has could not be forked any more.
    """
    return triton() if x.is_cuda else None


def layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """LN(x) (…, d), and for its gradient the mean and the inverse standard deviation of each row,
    (…, 1).
    """
    result: tuple[Tensor, Tensor, Tensor]
    fast = fast_for(x)
    if fast is not None and bias is not None:
        result = fast.layer_norm(x, weight, bias, eps)
    else:
        result = torch.ops.aten.native_layer_norm(
            x, weight.shape, *_same_dtype(x, weight, bias), eps
        )
    return result


def layer_norm_gradient(
    g: Tensor, x: Tensor, mean: Tensor, spread: Tensor, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """The gradient by x (…, d), from ``g`` by LN(x); the weights are frozen."""
    by_x: Tensor
    fast = fast_for(x)
    if fast is not None:
        by_x = fast.layer_norm_gradient(g, x, mean, spread, weight)
    else:
        near = _same_dtype(x, weight, bias)
        wanted = [True, False, False]
        by_x = torch.ops.aten.native_layer_norm_backward(
            g, x, weight.shape, mean, spread, *near, wanted
        )[0]
    return by_x


@torch.no_grad()
def merged_weights(
    weight: Tensor, bias: Tensor | None, scale: Tensor, shift: Tensor
) -> tuple[Tensor, Tensor]:
    """γ ⊙ W (out, …) and γ ⊙ b + β (out,), computed in the precision of γ and rounded to that
    of W.
    """
    fast = fast_for(weight)
    if fast is not None and weight.is_contiguous():
        rows, offset = fast.merged_weights(weight, bias, scale, shift)
        return rows, offset
    rows = torch.mul(weight, scale.view(-1, *[1] * (weight.ndim - 1)), out=torch.empty_like(weight))
    return rows, (shift if bias is None else bias * scale + shift).to(weight.dtype)


@torch.no_grad()
def norm_scale_gradients(
    g: Tensor,
    x: Tensor,
    mean: Tensor,
    spread: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    scale: Tensor,
) -> tuple[Tensor, Tensor]:
    """By γ and by β, (d,), from ``g`` by γ ⊙ LN(x) + β, (…, d); ``weight`` and ``bias`` are those
    of LN, frozen.

    Σ g ⊙ LN(x) is summed from x itself: it does not depend on γ.
    """
    fast = fast_for(g)
    if fast is not None:
        by_scale, by_shift = fast.norm_scale_gradients(g, x, mean, spread, weight, bias, scale)
        return by_scale, by_shift
    precision = torch.promote_types(x.dtype, scale.dtype)
    g = g.to(precision)
    x = x.to(precision)  # torch sums in the precision of x
    ones = torch.ones_like(weight, dtype=precision)
    wanted = [False, True, True]
    sums = torch.ops.aten.native_layer_norm_backward(
        g, x, weight.shape, mean, spread, ones, ones, wanted
    )
    along = sums[1] * weight
    by_shift = sums[2]
    along = along if bias is None else along + bias * by_shift
    return along.to(scale.dtype), by_shift.to(scale.dtype)


@torch.no_grad()
def scale_gradients(
    g: Tensor,
    z: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    scale: Tensor,
    shift: Tensor,
    *,
    gelu_in: bool = False,
    gelu_out: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """By z (…, out), and by γ and by β (out,), from ``g`` by z = γ ⊙ u + β with u = W x + b, or by
    GELU(z).

    ``gelu_in``: u = W GELU(x) + b. ``gelu_out``: ``g`` is by GELU(z). The gradient by γ is Σ g ⊙ u.
    u is read back from z where that is precise, and computed from x (…, in) in the channels where
    it is not.
    """
    fast = fast_for(g)
    if fast is not None:
        bounds = gelu_in, gelu_out, MIN_SCALE, MAX_RATIO
        by_z, by_scale, by_shift = fast.scale_gradients(
            g, z, x, weight, bias, scale, shift, *bounds
        )
        return by_z, by_scale, by_shift
    by_z = gelu_gradient(g, z) if gelu_out else g
    flat = by_z.reshape(-1, g.shape[-1])
    precision = torch.promote_types(g.dtype, scale.dtype)
    by_shift = flat.sum(dim=0, dtype=precision)
    imprecise = (scale.abs() < MIN_SCALE) | (shift.abs() > MAX_RATIO * scale.abs())
    along = (flat * z.reshape(flat.shape)).sum(dim=0, dtype=precision)
    by_scale = (along - shift * by_shift) / torch.where(imprecise, 1, scale)
    # CUDA computes all channels: to pick some, the host would have to wait, which a CUDA graph does
    # not allow.
    channels = slice(None) if g.is_cuda else imprecise.nonzero()[:, 0]
    if g.is_cuda or len(imprecise[channels]):
        inputs = (F.gelu(x) if gelu_in else x).reshape(-1, x.shape[-1]).to(precision)
        product = (flat[:, channels].T.to(precision) @ inputs).mul_(weight[channels]).sum(dim=1)
        by_scale[channels] = (
            product if bias is None else product + bias[channels] * by_shift[channels]
        )
    return by_z, by_scale.to(scale.dtype), by_shift.to(scale.dtype)


def gelu_gradient(g: Tensor, x: Tensor) -> Tensor:
    """g · (Φ(x) + x φ(x)), with Φ and φ of the standard normal distribution."""
    if x.device.type != "cpu" or VECTORS:
        by_x: Tensor = torch.ops.aten.gelu_backward(g, x)
        return by_x
    below = x.mul(math.sqrt(0.5)).erf_().add_(1).mul_(0.5)
    density = x.square().mul_(-0.5).exp_().mul_(1 / math.sqrt(2 * math.pi))
    return below.addcmul_(x, density).mul_(g)


def _same_dtype(x: Tensor, *weights: Tensor | None) -> list[Tensor | None]:
    """Weights in the dtype that torch's layer norm takes beside x: on CUDA that of x."""
    return [
        weight.to(x.dtype) if weight is not None and x.is_cuda else weight for weight in weights
    ]
