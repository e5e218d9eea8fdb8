"""Passes over memory that are worth a kernel of their own on CUDA, each with the lines of torch that say what it does.

Those lines serve every other device, and CUDA too where triton is not installed.
"""

import math
from typing import Any

import torch
from torch import Tensor

fast: Any
try:
    from safecl.backbone import triton_kernels as fast
except ImportError:
    fast = None

SMALL = 1e-6  # a scale nearer to 0 than this counts as this far: the output does not tell what it scaled


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """The normalised x (…, d), and what its gradient needs: the mean and one over the deviation of each row, (…, 1).

    The weights may be more precise than x.
    """
    result: tuple[Tensor, Tensor, Tensor]
    if fast is not None and x.is_cuda and bias is not None:
        result = fast.layer_norm(x, weight, bias, eps)
    else:
        result = torch.ops.aten.native_layer_norm(x, weight.shape, *_beside(x, weight, bias), eps)
    return result


def layer_norm_gradient(
    g: Tensor, x: Tensor, mean: Tensor, spread: Tensor, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """By x, from the gradient by the result; none by the weights, which are frozen."""
    by_x: Tensor
    if fast is not None and x.is_cuda:
        by_x = fast.layer_norm_gradient(g, x, mean, spread, weight)
    else:
        near, wanted = _beside(x, weight, bias), [True, False, False]
        by_x = torch.ops.aten.native_layer_norm_backward(g, x, weight.shape, mean, spread, *near, wanted)[0]
    return by_x


@torch.no_grad()
def merged_weights(weight: Tensor, bias: Tensor | None, scale: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """γ ⊙ W (out, …) and γ ⊙ b + β (out,), computed in the precision of γ and given in that of W."""
    if fast is not None and weight.is_cuda and weight.is_contiguous():
        rows, offset = fast.merged_weights(weight, bias, scale, shift)
        return rows, offset
    rows = torch.mul(weight, scale.view(-1, *[1] * (weight.ndim - 1)), out=torch.empty_like(weight))
    return rows, (shift if bias is None else bias * scale + shift).to(weight.dtype)


@torch.no_grad()
def scale_gradients(g: Tensor, z: Tensor, scale: Tensor, shift: Tensor, gelu: bool) -> tuple[Tensor, Tensor, Tensor]:
    """From the gradient by z = γ ⊙ u + β, or by GELU(z), and z itself, (…, out): by z, by γ and by β, (out,).

    That of γ is Σ g ⊙ u, and u is in z: neither u nor a matrix product is needed.
    """
    if fast is not None and g.is_cuda:
        by_z, by_scale, by_shift = fast.scale_gradients(g, z, scale, shift, gelu, SMALL)
        return by_z, by_scale, by_shift
    by_z = gelu_gradient(g, z) if gelu else g
    flat = by_z.reshape(-1, g.shape[-1])
    by_shift = flat.sum(dim=0, dtype=scale.dtype)
    along = (flat * z.reshape(flat.shape)).sum(dim=0, dtype=scale.dtype)
    return by_z, (along - shift * by_shift) / torch.where(scale.abs() < SMALL, SMALL, scale), by_shift


def gelu_gradient(g: Tensor, x: Tensor) -> Tensor:
    """g · (Φ(x) + x φ(x)), with Φ and φ of the standard normal distribution."""
    if x.device.type != "cpu":
        by_x: Tensor = torch.ops.aten.gelu_backward(g, x)
        return by_x
    # torch's own takes several times as long on CPUs for which it has no vector code.
    below = x.mul(math.sqrt(0.5)).erf_().add_(1).mul_(0.5)
    density = x.square().mul_(-0.5).exp_().mul_(1 / math.sqrt(2 * math.pi))
    return below.addcmul_(x, density).mul_(g)


def _beside(x: Tensor, *weights: Tensor | None) -> list[Tensor | None]:
    """Weights as torch takes them together with x: on CUDA in its precision."""
    return [weight.to(x.dtype) if weight is not None and x.is_cuda else weight for weight in weights]
