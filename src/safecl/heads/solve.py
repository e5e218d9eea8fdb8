"""(G + βI)⁻¹ W̃ to float64 residuals, with half a matrix and a few thin ones beside G.

A Cholesky factor in the precision of G, or where it is of few pictures some columns, precondition conjugate gradients.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from weakref import ref

import torch
from torch import Tensor

from safecl.ram import free_memory

COLUMNS = 512  # of the factor, or rows of G in float64, at a time
CLASSES = 256  # solved for at a time
MAX_STEPS, MAX_FEW_STEPS = 100, 8  # of the refinement, and of that by some columns; two to four are usual
MAX_PART = 0.15  # of the columns, up to which they are quicker than a factor

Factor = list[Tensor]  # a lower triangle as blocks of COLUMNS columns, each from its corner on the diagonal down
Inverse = Callable[[Tensor], Tensor]  # of nearly G + βI, times R (M, C) in the precision of G
_kept: ContextVar[list[tuple[ref[Tensor], int, float, Factor]] | None] = ContextVar("kept", default=None)


@contextmanager
def factors_kept() -> Iterator[None]:
    """Meanwhile G + βI is factored once for the same G and β, as long as there is memory to spare."""
    token = _kept.set([] if _kept.get() is None else _kept.get())
    try:
        yield
    finally:
        _kept.reset(token)


def solve(gram: Tensor, sums: Tensor, beta: float, pictures: int | None = None) -> Tensor:
    """(G + βI)⁻¹ W̃ for G (M, M) of ``pictures``, and W̃ (M, C): (M, C). A β below ``smallest_beta`` is raised to it."""
    if gram.device.type == "mps":  # has no float64
        return solve(gram.cpu(), sums.cpu(), beta, pictures).to(gram.device)
    beta, parts = max(beta, smallest_beta(gram)), torch.split(sums, CLASSES, dim=1)
    columns = len(gram) if pictures is None else pictures * 3 // 2 + 64
    if columns <= MAX_PART * len(gram) and (few := _low_rank(gram, columns, beta)) is not None:
        found = [_refined(gram, few, part, beta, MAX_FEW_STEPS) for part in parts]
        if all(part is not None for part in found):
            return torch.cat(found, dim=1)  # type: ignore[arg-type]
        del few, found  # before the whole factor needs the memory
    near = partial(_substitute, _factor(gram, beta))
    return torch.cat([_refined(gram, near, part, beta) for part in parts], dim=1)  # type: ignore[misc]


def _low_rank(gram: Tensor, columns: int, beta: float) -> Inverse | None:
    """The inverse of C Q⁻¹ Cᵀ + βI, with C (M, n) the first columns of G, Q (n, n) their top: that of a G of rank n."""
    c, unit = gram[:, :columns].double(), torch.eye(columns).to(gram.device).double()
    top, failed = torch.linalg.cholesky_ex(c[:columns] + smallest_beta(gram[:columns, :columns]) * unit)
    root = torch.linalg.solve_triangular(top.mT, c, upper=True, left=False)
    inner, worse = torch.linalg.cholesky_ex(root.T @ root + beta * unit)
    if failed or worse:
        return None
    return lambda r: ((r.double() - root @ torch.cholesky_solve(root.T @ r.double(), inner)) / beta).to(r)


def whitened(gram: Tensor, rows: Tensor, beta: float) -> Tensor:
    """L⁻¹ hᵀ of rows h (n, M), with L Lᵀ = G + βI: (M, n). Inner products of its columns are hᵀ (G + βI)⁻¹ h."""
    if gram.device.type == "mps":
        return whitened(gram.cpu(), rows.cpu(), beta).to(gram.device)
    return _forward(_factor(gram, max(beta, smallest_beta(gram))), rows.T.to(gram.dtype, copy=True))


def smallest_beta(gram: Tensor) -> float:
    """The rounding noise of G: with a smaller β the weights would fit it."""
    finfo = torch.finfo(gram.dtype)
    return max(finfo.eps * float(gram.diagonal().sum()), finfo.tiny)


def _refined(gram: Tensor, inverse: Inverse, sums: Tensor, beta: float, most: int | None = None) -> Tensor | None:
    """Conjugate gradients for (G + βI) W = W̃, preconditioned with nearly the inverse; None: not in ``most`` steps."""
    finfo, residual = torch.finfo(gram.dtype), sums.to(torch.float64, copy=True)
    enough = 10 * finfo.eps * residual.norm(dim=0)
    weight, direction, before = torch.zeros_like(residual), torch.zeros_like(residual), torch.ones_like(residual[0])
    for _ in range((most or MAX_STEPS) + 1):
        if (residual.norm(dim=0) <= enough).all():
            return weight.to(gram.dtype)
        near = inverse(residual.to(gram.dtype, copy=True)).double()
        size = (residual * near).sum(dim=0)
        direction = near.addcmul_(direction, size / before)
        image = _times(gram, direction, beta)
        length = size / (direction * image).sum(dim=0).clamp(min=finfo.tiny)
        weight.addcmul_(direction, length)
        residual.addcmul_(image, length, value=-1)
        before = size.clamp(min=finfo.tiny)
    return None if most else weight.to(gram.dtype)


def _factor(gram: Tensor, beta: float) -> Factor:
    """The lower Cholesky factor of G + βI, with β raised where that is singular to working precision."""
    kept, key = _kept.get(), (gram._version, beta)  # in-place changes are counted in the version
    for of, *known, found in kept or ():
        if of() is gram and (*known,) == key:
            return found
    while (factor := _cholesky(gram, beta)) is None:
        assert math.isfinite(beta)
        beta *= 10
    if kept is not None and 4 * gram.nbytes < free_memory(gram.device):
        kept.append((ref(gram), *key, factor))
    return factor


def _cholesky(gram: Tensor, beta: float) -> Factor | None:
    """The lower factor of G + βI, if there is one, without the whole copy of G that LAPACK needs."""
    blocks: Factor = []
    for start in range(0, len(gram), COLUMNS):
        block = gram[start:, start : start + COLUMNS].clone()
        wide = block.shape[1]
        block.diagonal().add_(beta)
        for i, left in enumerate(blocks):
            rows = left[start - i * COLUMNS :]
            block.addmm_(rows, rows[:wide].mT.contiguous(), alpha=-1)  # a transposed view takes BLAS 1.6 times as long
        corner, info = torch.linalg.cholesky_ex(block[:wide])
        if info:
            return None
        block[:wide] = corner
        block[wide:] = torch.linalg.solve_triangular(corner.mT, block[wide:], upper=True, left=False)
        blocks.append(block)
    return blocks


def _forward(factor: Factor, right: Tensor) -> Tensor:
    """L⁻¹ R, in place of R (M, C)."""
    for i, block in enumerate(factor):
        wide = block.shape[1]
        here, below = right[i * COLUMNS :][:wide], right[i * COLUMNS + wide :]
        here.copy_(torch.linalg.solve_triangular(block[:wide], here, upper=False))
        below.addmm_(block[wide:], here, alpha=-1)
    return right


def _substitute(factor: Factor, right: Tensor) -> Tensor:
    """(L Lᵀ)⁻¹ R, in place of R (M, C)."""
    _forward(factor, right)
    for i, block in reversed(list(enumerate(factor))):
        wide = block.shape[1]
        here, below = right[i * COLUMNS :][:wide], right[i * COLUMNS + wide :]
        here.addmm_(block[wide:].mT, below, alpha=-1)
        here.copy_(torch.linalg.solve_triangular(block[:wide].mT, here, upper=True))
    return right


def _times(gram: Tensor, weight: Tensor, beta: float) -> Tensor:
    """(G + βI) W in float64, without a float64 copy of G."""
    product = beta * weight
    for start in range(0, len(gram), COLUMNS):
        here = slice(start, start + COLUMNS)
        product[here].addmm_(gram[here].double(), weight)
    return product


def left_out_dual(x: Tensor, h: Tensor, y: Tensor, groups: Tensor, beta: float) -> Tensor:
    """Logits (N, C) of x (N, M) by ridge regression on h (N · v, M) and y (N · v, C), without those of the same group.

    Rows v · i and those behind it are of picture i; ``groups``: (N · v,). In float64, by the kernel: precise for any β.
    """
    rows, groups, views = h.double().cpu(), groups.cpu(), len(h) // len(x)
    inverse = torch.linalg.inv(rows @ rows.T + beta * torch.eye(len(rows), dtype=torch.float64))
    kernel, dual = x.double().cpu() @ rows.T, inverse @ y.double().cpu()
    z = torch.empty(len(x), y.shape[1], dtype=torch.float64)
    for group in torch.unique(groups).tolist():
        here = (groups == group).nonzero()[:, 0]
        without = dual - inverse[:, here] @ torch.linalg.solve(inverse[here][:, here], dual[here])
        asked = (groups[::views] == group).nonzero()[:, 0]
        z[asked] = kernel[asked] @ without
    return z.to(y)
