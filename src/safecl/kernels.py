"""Passes over memory that are worth a kernel of their own on CUDA, each beside the lines of torch that it stands for.

Where triton is not installed the lines of torch serve CUDA too.
"""

import math
from typing import Any

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # a CPU, or another accelerator
    triton = None

SMALL = 1e-6  # a scale nearer to 0 than this counts as this far: the output does not tell what it scaled


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """The normalised x (…, d), and what its gradient needs: the mean and one over the deviation of each row, (…, 1).

    The weights may be more precise than x.
    """
    if triton is None or not x.is_cuda or bias is None:
        return torch.native_layer_norm(x, weight.shape, *_beside(x, weight, bias), eps)
    x, y, width = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format), x.shape[-1]
    mean, spread = (x.new_empty(*x.shape[:-1], 1, dtype=torch.float32) for _ in range(2))
    rows = x.numel() // width
    _norm[(triton.cdiv(rows, NORM_ROWS),)](
        x, weight, bias, y, mean, spread, rows, width, eps, NORM_ROWS, _power(width), num_warps=NORM_WARPS
    )
    return y, mean, spread


def layer_norm_gradient(g: Tensor, x: Tensor, mean: Tensor, spread: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """By x, from the gradient by the result; none by the weights, which are frozen."""
    if triton is None or not x.is_cuda:
        wanted = [True, False, False]
        near = _beside(x, weight, bias)
        by_x: Tensor = torch.ops.aten.native_layer_norm_backward(g, x, weight.shape, mean, spread, *near, wanted)[0]
        return by_x
    g, x, width = g.contiguous(), x.contiguous(), x.shape[-1]
    by_x, rows = torch.empty_like(x), x.numel() // width
    _norm_back[(triton.cdiv(rows, NORM_ROWS),)](
        g, x, weight, mean, spread, by_x, rows, width, NORM_ROWS, _power(width), num_warps=NORM_WARPS
    )
    return by_x


@torch.no_grad()
def folded(weight: Tensor, bias: Tensor | None, scale: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """γ ⊙ W (out, …) and γ ⊙ b + β (out,), computed in the precision of γ and given in that of W."""
    rows = torch.empty_like(weight)
    if triton is not None and weight.is_cuda and weight.is_contiguous():
        offset = torch.empty_like(scale, dtype=weight.dtype)
        width = weight[0].numel()
        _fold[(len(weight),)](weight, bias, scale, shift, rows, offset, width, bias is not None, _power(width))
        return rows, offset
    torch.mul(weight, scale.view(-1, *[1] * (weight.ndim - 1)), out=rows)
    offset = shift if bias is None else bias * scale + shift
    return rows, offset.to(weight.dtype)


@torch.no_grad()
def scale_gradients(g: Tensor, z: Tensor, scale: Tensor, shift: Tensor, gelu: bool) -> tuple[Tensor, Tensor, Tensor]:
    """From the gradient by z = γ ⊙ u + β, or by GELU(z), and z itself, (…, out): by z, by γ and by β, (out,).

    That of γ is Σ g ⊙ u, and u is in z: neither u nor a matrix product is needed.
    """
    if triton is None or not g.is_cuda:
        by_z = gelu_gradient(g, z) if gelu else g
        flat = by_z.reshape(-1, g.shape[-1])
        by_shift = flat.sum(dim=0, dtype=scale.dtype)
        along = (flat * z.reshape(flat.shape)).sum(dim=0, dtype=scale.dtype)
        return by_z, (along - shift * by_shift) / torch.where(scale.abs() < SMALL, SMALL, scale), by_shift
    g, z, width = g.contiguous(), z.contiguous(), g.shape[-1]
    by_z, n = torch.empty_like(g) if gelu else g, g.numel() // width
    parts, blocks = triton.cdiv(n, SUM_ROWS), triton.cdiv(width, SUM_COLUMNS)
    sums = g.new_empty(2, parts, width, dtype=torch.float32)
    by_scale, by_shift = torch.empty_like(scale), torch.empty_like(shift)
    _sum[(blocks, parts)](
        g, z, by_z, sums, n, width, parts, gelu, SUM_ROWS, SUM_STEP, SUM_COLUMNS, num_warps=SUM_WARPS
    )
    _finish[(triton.cdiv(width, 32),)](sums, scale, shift, by_scale, by_shift, width, parts, SMALL, 32, 32)
    return by_z, by_scale, by_shift


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


def _power(n: int) -> int:
    return max(16, 1 << (n - 1).bit_length())


# Found by trying, on an H200 with the activations of a ViT-B.
NORM_ROWS, NORM_WARPS = 2, 2  # rows of a program
SUM_ROWS, SUM_STEP, SUM_COLUMNS, SUM_WARPS = 128, 32, 128, 4  # of a program, and the rows it loads at once

if triton is not None:

    @triton.jit
    def _norm(x, weight, bias, y, mean, spread, rows, width, eps, count: tl.constexpr, block: tl.constexpr) -> Any:  # type: ignore[no-untyped-def]
        row, column = tl.program_id(0) * count + tl.arange(0, count), tl.arange(0, block)
        inside = column < width
        here, at = (row < rows)[:, None] & inside[None, :], row[:, None].to(tl.int64) * width + column[None, :]
        v = tl.load(x + at, mask=here, other=0.0).to(tl.float32)
        m = tl.sum(v, axis=1) / width
        v = tl.where(here, v - m[:, None], 0.0)
        r = tl.rsqrt(tl.sum(v * v, axis=1) / width + eps)
        w = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
        tl.store(y + at, v * r[:, None] * w[None, :] + b[None, :], mask=here)
        tl.store(mean + row, m, mask=row < rows)
        tl.store(spread + row, r, mask=row < rows)

    @triton.jit
    def _norm_back(g, x, weight, mean, spread, by_x, rows, width, count: tl.constexpr, block: tl.constexpr) -> Any:  # type: ignore[no-untyped-def]
        row, column = tl.program_id(0) * count + tl.arange(0, count), tl.arange(0, block)
        inside = column < width
        here, at = (row < rows)[:, None] & inside[None, :], row[:, None].to(tl.int64) * width + column[None, :]
        m, r = tl.load(mean + row, mask=row < rows, other=0.0), tl.load(spread + row, mask=row < rows, other=0.0)
        v = tl.where(here, (tl.load(x + at, mask=here, other=0.0).to(tl.float32) - m[:, None]) * r[:, None], 0.0)
        w = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
        u = tl.load(g + at, mask=here, other=0.0).to(tl.float32) * w[None, :]
        along, level = tl.sum(u * v, axis=1) / width, tl.sum(u, axis=1) / width
        tl.store(by_x + at, (u - level[:, None] - v * along[:, None]) * r[:, None], mask=here)

    @triton.jit
    def _fold(weight, bias, scale, shift, rows, offset, width, has_bias: tl.constexpr, block: tl.constexpr) -> Any:  # type: ignore[no-untyped-def]
        row, column = tl.program_id(0), tl.arange(0, block)
        inside, s, b = column < width, tl.load(scale + row), tl.load(shift + row)
        at = row * width + column
        tl.store(rows + at, tl.load(weight + at, mask=inside).to(tl.float32) * s, mask=inside)
        if has_bias:
            b += tl.load(bias + row).to(tl.float32) * s
        tl.store(offset + row, b)

    @triton.jit
    def _sum(  # type: ignore[no-untyped-def]
        g, z, by_z, sums, n, width, parts,
        gelu: tl.constexpr, count: tl.constexpr, step: tl.constexpr, block: tl.constexpr,
    ) -> Any:  # fmt: skip
        column, part = tl.program_id(0) * block + tl.arange(0, block), tl.program_id(1)
        inside = column < width
        one, along = tl.zeros((step, block), tl.float32), tl.zeros((step, block), tl.float32)
        for start in range(0, count, step):
            row = part * count + start + tl.arange(0, step)
            at = row[:, None].to(tl.int64) * width + column[None, :]
            here = (row < n)[:, None] & inside[None, :]
            a = tl.load(g + at, mask=here, other=0.0).to(tl.float32)
            b = tl.load(z + at, mask=here, other=0.0).to(tl.float32)
            if gelu:  # a · (Φ(b) + b φ(b))
                a *= 0.5 * (1 + tl.erf(b * 0.7071067811865476)) + b * 0.3989422804014327 * tl.exp(-0.5 * b * b)
                tl.store(by_z + at, a, mask=here)
            one += a
            along += a * b
        tl.store(sums + part * width + column, tl.sum(one, axis=0), mask=inside)
        tl.store(sums + (parts + part) * width + column, tl.sum(along, axis=0), mask=inside)

    @triton.jit
    def _finish(sums, scale, shift, by_scale, by_shift, width, parts, small, step: tl.constexpr, block: tl.constexpr) -> Any:  # type: ignore[no-untyped-def]
        column = tl.program_id(0) * block + tl.arange(0, block)
        inside = column < width
        one, along = tl.zeros((step, block), tl.float32), tl.zeros((step, block), tl.float32)
        for start in range(0, parts, step):
            part = start + tl.arange(0, step)
            at, here = part[:, None] * width + column[None, :], (part < parts)[:, None] & inside[None, :]
            one += tl.load(sums + at, mask=here, other=0.0)
            along += tl.load(sums + parts * width + at, mask=here, other=0.0)
        total = tl.sum(one, axis=0)
        s, b = tl.load(scale + column, mask=inside, other=1.0), tl.load(shift + column, mask=inside, other=0.0)
        s = tl.where(tl.abs(s) < small, small, s)
        tl.store(by_scale + column, (tl.sum(along, axis=0) - b * total) / s, mask=inside)
        tl.store(by_shift + column, total, mask=inside)
