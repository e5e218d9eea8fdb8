"""The Triton kernels of ``kernels.py``, which says what each computes; imported where triton is
installed.
"""

# mypy: ignore-errors
# Triton's language has no types: the arguments of a kernel are pointers and sizes; a constexpr is
# compiled in.

import torch
import triton
import triton.language as tl

# The fastest of those tried on an H200 with the activations of a ViT-B.
NORM_ROWS = 2  # of a program
NORM_WARPS = 2
SUM_COLUMNS = 128  # of a program
SUM_WARPS = 4
SUM_ROWS = {False: (128, 32), True: (64, 8)}  # of a program, and at once; without and with GELU


def layer_norm(x, weight, bias, eps):
    x, width = x.contiguous(), x.shape[-1]
    y = torch.empty_like(x)
    rows = x.numel() // width
    mean, spread = (x.new_empty(*x.shape[:-1], 1, dtype=torch.float32) for _ in range(2))
    grid = (triton.cdiv(rows, NORM_ROWS),)
    _norm[grid](
        x,
        weight,
        bias,
        y,
        mean,
        spread,
        rows,
        width,
        eps,
        NORM_ROWS,
        _power(width),
        num_warps=NORM_WARPS,
    )
    return y, mean, spread


def layer_norm_gradient(g, x, mean, spread, weight):
    g, x, width = g.contiguous(), x.contiguous(), x.shape[-1]
    by_x = torch.empty_like(x)
    rows = x.numel() // width
    grid = (triton.cdiv(rows, NORM_ROWS),)
    _norm_back[grid](
        g,
        x,
        weight,
        mean,
        spread,
        by_x,
        rows,
        width,
        NORM_ROWS,
        _power(width),
        num_warps=NORM_WARPS,
    )
    return by_x


def merged_weights(weight, bias, scale, shift):
    rows = torch.empty_like(weight)
    offset = torch.empty_like(scale, dtype=weight.dtype)
    width = weight[0].numel()
    _merge[(len(weight),)](
        weight, bias, scale, shift, rows, offset, width, bias is not None, _power(width)
    )
    return rows, offset


def norm_scale_gradients(g, x, mean, spread, weight, bias, scale):
    g, x, width = g.contiguous(), x.contiguous(), g.shape[-1]
    sums, parts = _sums(g, x, g, mean, spread, scale, norm=True, gelu=False)
    by_scale = torch.empty_like(scale)
    by_shift = torch.empty_like(scale)
    grid = (triton.cdiv(width, 32),)
    _finish_norm[grid](
        sums, weight, bias, by_scale, by_shift, width, parts, bias is not None, 32, 32
    )
    return by_scale, by_shift


def scale_gradients(g, z, x, weight, bias, scale, shift, gelu_in, gelu_out, tiny, ratio):
    g = g.contiguous()
    z = z.contiguous()
    x = x.contiguous()
    weight = weight.contiguous()
    inputs = weight.shape[1]
    width = weight.shape[0]
    by_z = torch.empty_like(g) if gelu_out else g
    sums, parts = _sums(g, z, by_z, None, None, scale, norm=False, gelu=gelu_out)
    by_scale = torch.empty_like(scale)
    by_shift = torch.empty_like(shift)
    _finish[(triton.cdiv(width, 32),)](
        sums,
        by_z,
        x,
        weight,
        bias,
        scale,
        shift,
        by_scale,
        by_shift,
        g.numel() // width,
        inputs,
        width,
        parts,
        tiny,
        ratio,
        bias is not None,
        gelu_in,
        32,
        32,
        64,
    )
    return by_z, by_scale, by_shift


def _sums(g, z, by_z, mean, spread, scale, norm, gelu):
    """The sums of g and of g · z over some rows each, (2, parts, width), with z normalised if
    ``norm``.
    """
    width, (count, step) = g.shape[-1], SUM_ROWS[gelu]
    n = g.numel() // width
    parts = triton.cdiv(n, count)
    sums = g.new_empty(2, parts, width, dtype=torch.float32)
    grid = (triton.cdiv(width, SUM_COLUMNS), parts)
    sizes = count, step, SUM_COLUMNS
    _sum[grid](
        g, z, by_z, mean, spread, sums, n, width, parts, norm, gelu, *sizes, num_warps=SUM_WARPS
    )
    return sums, parts


def _power(n):
    return max(16, triton.next_power_of_2(n))


@triton.jit(do_not_specialize=["rows"])
def _norm(
    x, weight, bias, y, mean, spread, rows, width, eps, count: tl.constexpr, block: tl.constexpr
):
    row = tl.program_id(0) * count + tl.arange(0, count)
    column = tl.arange(0, block)
    inside = column < width
    here = (row < rows)[:, None] & inside[None, :]
    at = row[:, None].to(tl.int64) * width + column[None, :]
    v = tl.load(x + at, mask=here, other=0.0).to(tl.float32)
    m = tl.sum(v, axis=1) / width
    v = tl.where(here, v - m[:, None], 0.0)
    r = tl.rsqrt(tl.sum(v * v, axis=1) / width + eps)
    w = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + at, v * r[:, None] * w[None, :] + b[None, :], mask=here)
    tl.store(mean + row, m, mask=row < rows)
    tl.store(spread + row, r, mask=row < rows)


@triton.jit(do_not_specialize=["rows"])
def _norm_back(
    g, x, weight, mean, spread, by_x, rows, width, count: tl.constexpr, block: tl.constexpr
):
    row = tl.program_id(0) * count + tl.arange(0, count)
    column = tl.arange(0, block)
    inside = column < width
    here = (row < rows)[:, None] & inside[None, :]
    at = row[:, None].to(tl.int64) * width + column[None, :]
    m = tl.load(mean + row, mask=row < rows, other=0.0)
    r = tl.load(spread + row, mask=row < rows, other=0.0)
    v = tl.where(
        here, (tl.load(x + at, mask=here, other=0.0).to(tl.float32) - m[:, None]) * r[:, None], 0.0
    )
    w = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(g + at, mask=here, other=0.0).to(tl.float32) * w[None, :]
    along = tl.sum(u * v, axis=1) / width
    level = tl.sum(u, axis=1) / width
    tl.store(by_x + at, (u - level[:, None] - v * along[:, None]) * r[:, None], mask=here)


@triton.jit
def _merge(
    weight, bias, scale, shift, rows, offset, width, has_bias: tl.constexpr, block: tl.constexpr
):
    row = tl.program_id(0)
    column = tl.arange(0, block)
    inside = column < width
    s = tl.load(scale + row)
    b = tl.load(shift + row)
    at = row * width + column
    tl.store(rows + at, tl.load(weight + at, mask=inside).to(tl.float32) * s, mask=inside)
    if has_bias:
        b += tl.load(bias + row).to(tl.float32) * s
    tl.store(offset + row, b)


@triton.jit
def _gelu(x):
    return 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))


@triton.jit(do_not_specialize=["n", "parts"])
def _sum(
    g,
    z,
    by_z,
    mean,
    spread,
    sums,
    n,
    width,
    parts,
    norm: tl.constexpr,
    gelu: tl.constexpr,
    count: tl.constexpr,
    step: tl.constexpr,
    block: tl.constexpr,
):
    column = tl.program_id(0) * block + tl.arange(0, block)
    part = tl.program_id(1)
    inside = column < width
    one = tl.zeros((step, block), tl.float32)
    along = tl.zeros((step, block), tl.float32)
    for start in range(0, count, step):
        row = part * count + start + tl.arange(0, step)
        at = row[:, None].to(tl.int64) * width + column[None, :]
        here = (row < n)[:, None] & inside[None, :]
        a = tl.load(g + at, mask=here, other=0.0).to(tl.float32)
        b = tl.load(z + at, mask=here, other=0.0).to(tl.float32)
        if norm:
            m = tl.load(mean + row, mask=row < n, other=0.0)
            r = tl.load(spread + row, mask=row < n, other=0.0)
            b = (b - m[:, None]) * r[:, None]
        if gelu:  # a · (Φ(b) + b φ(b))
            a *= 0.5 * (1 + tl.erf(b * 0.7071067811865476)) + b * 0.3989422804014327 * tl.exp(
                -0.5 * b * b
            )
            tl.store(by_z + at, a, mask=here)
        one += a
        along += a * b
    tl.store(sums + part * width + column, tl.sum(one, axis=0), mask=inside)
    tl.store(sums + (parts + part) * width + column, tl.sum(along, axis=0), mask=inside)


@triton.jit
def _totals(sums, column, width, parts, step: tl.constexpr, block: tl.constexpr):
    one = tl.zeros((step, block), tl.float32)
    along = tl.zeros((step, block), tl.float32)
    for start in range(0, parts, step):
        part = start + tl.arange(0, step)
        at = part[:, None] * width + column[None, :]
        here = (part < parts)[:, None] & (column < width)[None, :]
        one += tl.load(sums + at, mask=here, other=0.0)
        along += tl.load(sums + parts * width + at, mask=here, other=0.0)
    return tl.sum(one, axis=0), tl.sum(along, axis=0)


@triton.jit(do_not_specialize=["parts"])
def _finish_norm(
    sums,
    weight,
    bias,
    by_scale,
    by_shift,
    width,
    parts,
    has_bias: tl.constexpr,
    step: tl.constexpr,
    block: tl.constexpr,
):
    column = tl.program_id(0) * block + tl.arange(0, block)
    inside = column < width
    total, along = _totals(sums, column, width, parts, step, block)
    result = along * tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    if has_bias:
        result += total * tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(by_scale + column, result, mask=inside)
    tl.store(by_shift + column, total, mask=inside)


@triton.jit(do_not_specialize=["n", "parts"])
def _finish(
    sums,
    by_z,
    x,
    weight,
    bias,
    scale,
    shift,
    by_scale,
    by_shift,
    n,
    inputs,
    width,
    parts,
    tiny,
    ratio,
    has_bias: tl.constexpr,
    gelu: tl.constexpr,
    step: tl.constexpr,
    block: tl.constexpr,
    depth: tl.constexpr,
):
    column = tl.program_id(0) * block + tl.arange(0, block)
    inside = column < width
    total, along = _totals(sums, column, width, parts, step, block)
    s = tl.load(scale + column, mask=inside, other=1.0)
    b = tl.load(shift + column, mask=inside, other=0.0)
    imprecise = (tl.abs(s) < tiny) | (tl.abs(b) > ratio * tl.abs(s))
    result = (along - b * total) / tl.where(imprecise, 1.0, s)
    # Σ g u from x and W: Σ over inputs of W ⊙ (gᵀ x)
    if tl.sum(imprecise.to(tl.int32), axis=0) > 0:
        exact = tl.zeros((block,), tl.float32)
        for first in range(0, inputs, depth):
            k = first + tl.arange(0, depth)
            product = tl.zeros((block, depth), tl.float32)
            for start in range(0, n, step):
                row = start + tl.arange(0, step)
                at = row.to(tl.int64)
                real = row < n
                v = tl.load(
                    x + at[:, None] * inputs + k[None, :],
                    mask=real[:, None] & (k < inputs)[None, :],
                    other=0.0,
                )
                a = tl.load(
                    by_z + at[None, :] * width + column[:, None],
                    mask=inside[:, None] & real[None, :],
                    other=0.0,
                )
                if gelu:
                    v = _gelu(v.to(tl.float32)).to(v.dtype)
                product = tl.dot(a, v.to(a.dtype), acc=product, input_precision="ieee")
            here = inside[:, None] & (k < inputs)[None, :]
            w = tl.load(weight + column[:, None] * inputs + k[None, :], mask=here, other=0.0).to(
                tl.float32
            )
            exact += tl.sum(product * w, axis=1)
        if has_bias:
            exact += total * tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
        result = tl.where(imprecise, exact, result)
    tl.store(by_scale + column, result, mask=inside)
    tl.store(by_shift + column, total, mask=inside)
