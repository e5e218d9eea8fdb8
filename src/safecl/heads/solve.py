"""(G + βI)⁻¹ W̃ as float64 has it, to the rounding of the weights to the precision of G, with half
a matrix and a few thin ones beside G. β is one number, or one for each random feature (M,): then βI
is the diagonal matrix of these.

A Cholesky factor in the precision of G, or where it is of few pictures some columns, precondition
conjugate gradients.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias
from weakref import ref

import torch
from torch import Tensor

from safecl.ram import free_memory

COLUMNS = 512  # of the factor, or rows of G in float64, at a time
CLASSES = 256  # solved for at a time
MAX_STEPS = 100
MAX_FEW_STEPS = 8  # of the refinement, and of that by some columns; two to four are usual
MAX_PART = 0.15  # of the columns, up to which they are quicker than a factor

MAX_UPDATES = 256  # rows added to G, up to which an old factor serves

Beta: TypeAlias = float | Tensor
# a lower triangle as blocks of COLUMNS columns, each from its corner on the diagonal down
Factor = list[Tensor]
Inverse = Callable[[Tensor], Tensor]  # of nearly G + βI, times R (M, C) in the precision of G


@dataclass(frozen=True)
class Updated:
    """A factor of G + βI as it was, and what was added to G since: rows (k, M), those with a
    ``sign`` (k,) of −1 taken out.
    """

    factor: Factor
    rows: Tensor
    sign: Tensor
    thin: Tensor  # what the factor makes of the rows: (M, k)

    @classmethod
    def of(cls, factor: Factor, gram: Tensor) -> "Updated":
        """Of a matrix that is as it was."""
        return cls(factor, gram[:0], gram[:0, 0], gram[:, :0])

    def and_then(self, rows: Tensor, sign: Tensor) -> "Updated":
        more = _substitute(self.factor, rows.T.contiguous())
        every = (torch.cat([self.rows, rows]), torch.cat([self.sign, sign]))
        return Updated(self.factor, *every, torch.cat([self.thin, more], dim=1))

    def inverse(self) -> Inverse:
        """That of A + Uᵀ S U by that of A: A⁻¹ − A⁻¹ Uᵀ (S + U A⁻¹ Uᵀ)⁻¹ U A⁻¹."""
        if not len(self.rows):
            return partial(_substitute, self.factor)
        thin = self.thin
        inner = self.sign.double().diag() + self.rows.double() @ thin.double()

        def inverse(right: Tensor) -> Tensor:
            whole = _substitute(self.factor, right)
            left = torch.linalg.solve(inner, self.rows.double() @ whole.double())
            found: Tensor = whole - thin @ left.to(whole)
            return found

        return inverse


@dataclass
class Kept:
    """Factors of G + βI that were made, each for a matrix as it then was.

    ``near``: of a matrix, a factor of what it was before a few rows.
    """

    room: int | None = None  # bytes to spare; None: what is free on the device
    factors: list[tuple[ref[Tensor], int, Beta, Factor]] = field(default_factory=list)
    near: list[tuple[ref[Tensor], Updated]] = field(default_factory=list)

    def of(self, gram: Tensor) -> Updated | None:
        """What is known of a matrix that was solved for."""
        for own, version, _, factor in self.factors:
            if own() is gram and version == gram._version:
                return Updated.of(factor, gram)
        return self.nearly(gram)

    def nearly(self, gram: Tensor) -> Updated | None:
        """What the matrix is nearly, as somebody has said."""
        return next((known for own, known in self.near if own() is gram), None)

    def find(self, gram: Tensor, beta: Beta) -> Factor | None:
        for of, version, own, factor in self.factors:
            # in-place changes are counted in the version
            if of() is gram and version == gram._version and _same(own, beta):
                return factor
        return None

    def keep(self, gram: Tensor, beta: Beta, factor: Factor) -> None:
        room = free_memory(gram.device) if self.room is None else self.room
        if 4 * gram.nbytes < room:
            self.factors.append((ref(gram), gram._version, beta, factor))


def _same(one: Beta, other: Beta) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.equal(one, other)
    return not isinstance(one, Tensor) and not isinstance(other, Tensor) and one == other


_kept: ContextVar[Kept | None] = ContextVar("kept", default=None)


@contextmanager
def factors_kept(room: int | None = None) -> Iterator[Kept]:
    """Meanwhile G + βI is factored once for the same G and β, as long as there is memory to
    spare.
    """
    kept = _kept.get() or Kept(room)
    token = _kept.set(kept)
    try:
        yield kept
    finally:
        _kept.reset(token)


def solve(
    gram: Tensor,
    sums: Tensor,
    beta: Beta,
    pictures: int | None = None,
    factor: Callable[[Tensor, Beta], Factor | None] | None = None,
) -> Tensor:
    """(G + βI)⁻¹ W̃ for G (M, M) of ``pictures``, and W̃ (M, C): (M, C).

    One β below ``smallest_beta`` is raised to it. ``factor``: gives the lower factor of G + βI, or
    None where it is singular to working precision; ``factored`` if none is given.
    """
    if gram.device.type == "mps":  # has no float64
        beta = beta.cpu() if isinstance(beta, Tensor) else beta
        return solve(gram.cpu(), sums.cpu(), beta, pictures, factor).to(gram.device)
    beta = _raised(gram, beta)
    parts = torch.split(sums, CLASSES, dim=1)
    kept = _kept.get()
    known = None if kept is None else kept.nearly(gram)
    if known is not None:
        near = known.inverse()
        found = [_refined(gram, near, part, beta, MAX_FEW_STEPS) for part in parts]
        if all(part is not None for part in found):
            return torch.cat(found, dim=1)  # type: ignore[arg-type]
    columns = len(gram) if pictures is None else pictures * 3 // 2 + 64
    if columns <= MAX_PART * len(gram) and (few := _low_rank(gram, columns, beta)) is not None:
        found = [_refined(gram, few, part, beta, MAX_FEW_STEPS) for part in parts]
        if all(part is not None for part in found):
            return torch.cat(found, dim=1)  # type: ignore[arg-type]
        del few, found  # before the whole factor needs the memory
    near = partial(_substitute, _factor(gram, beta, factor or factored))
    return torch.cat([_refined(gram, near, part, beta) for part in parts], dim=1)  # type: ignore[misc]


def _low_rank(gram: Tensor, columns: int, beta: Beta) -> Inverse | None:
    """The inverse of C Q⁻¹ Cᵀ + βI, with C (M, n) the first columns of G, Q (n, n) their top: that
    of a G of rank n.
    """
    if isinstance(beta, Tensor):
        return _low_rank_each(gram, columns, beta)
    c = gram[:, :columns].double()
    unit = torch.eye(columns).to(gram.device).double()
    top, failed = torch.linalg.cholesky_ex(
        c[:columns] + smallest_beta(gram[:columns, :columns]) * unit
    )
    root = torch.linalg.solve_triangular(top.mT, c, upper=True, left=False)
    inner, worse = torch.linalg.cholesky_ex(root.T @ root + beta * unit)
    if failed or worse:
        return None
    return lambda r: (
        (r.double() - root @ torch.cholesky_solve(root.T @ r.double(), inner)) / beta
    ).to(r)


def _low_rank_each(gram: Tensor, columns: int, beta: Tensor) -> Inverse | None:
    """As ``_low_rank``, in units in which every β is 1; columns from everywhere, as the first ones
    may read one block alone.
    """
    scale = beta.double().rsqrt()
    some = torch.linspace(0, len(gram) - 1, columns, device=gram.device).round().long()
    c = scale[:, None] * gram[:, some].double() * scale[some]
    unit = torch.eye(columns).to(c)
    noise = torch.finfo(gram.dtype).eps * c[some].diagonal().sum()
    top, failed = torch.linalg.cholesky_ex(c[some] + noise * unit)
    root = torch.linalg.solve_triangular(top.mT, c, upper=True, left=False)
    inner, worse = torch.linalg.cholesky_ex(root.T @ root + unit)
    if failed or worse:
        return None

    def inverse(right: Tensor) -> Tensor:
        scaled = scale[:, None] * right.double()
        rest = scaled - root @ torch.cholesky_solve(root.T @ scaled, inner)
        found: Tensor = (scale[:, None] * rest).to(right)
        return found

    return inverse


def whitened(gram: Tensor, rows: Tensor, beta: Beta) -> Tensor:
    """L⁻¹ hᵀ of rows h (n, M), with L Lᵀ = G + βI: (M, n). Inner products of its columns are hᵀ (G
    + βI)⁻¹ h.
    """
    if gram.device.type == "mps":
        beta = beta.cpu() if isinstance(beta, Tensor) else beta
        return whitened(gram.cpu(), rows.cpu(), beta).to(gram.device)
    factor = _factor(gram, _raised(gram, beta), factored)
    return _forward(factor, rows.T.to(gram.dtype, copy=True))


def smallest_beta(gram: Tensor) -> float:
    """The rounding noise of G: with a smaller β the weights would fit it."""
    finfo = torch.finfo(gram.dtype)
    return max(finfo.eps * float(gram.diagonal().sum()), finfo.tiny)


def _raised(gram: Tensor, beta: Beta) -> Beta:
    """What can be told from the rounding noise of G."""
    return beta if isinstance(beta, Tensor) else max(beta, smallest_beta(gram))


def _refined(
    gram: Tensor, inverse: Inverse, sums: Tensor, beta: Beta, most: int | None = None
) -> Tensor | None:
    """Conjugate gradients for (G + βI) W = W̃, preconditioned with nearly the inverse, until what is
    missing of W is less than its rounding; None: not in ``most`` steps.

    What is missing is at most what the inverse gives, times the longest step so far. The last
    addition needs no product with G: it leaves the share that the worst step so far has left.
    """
    finfo = torch.finfo(gram.dtype)
    residual = sums.to(torch.float64, copy=True)
    weight = torch.zeros_like(residual)
    direction = torch.zeros_like(residual)
    size_before = missing_before = torch.ones_like(residual[0])
    left = torch.zeros_like(residual[0])
    longest = torch.ones_like(residual[0])
    for step in range((most or MAX_STEPS) + 1):
        near = inverse(residual.to(gram.dtype, copy=True)).double()
        missing = near.square().sum(dim=0)
        if step:
            left = torch.maximum(left, missing / missing_before)
            enough = finfo.eps**2 * weight.square().sum(dim=0)
            if (left * longest**2 * missing <= enough).all():
                return weight.add_(near).to(gram.dtype)
        size = (residual * near).sum(dim=0)
        direction = near.addcmul_(direction, size / size_before)
        image = _times(gram, direction, beta)
        length = size / (direction * image).sum(dim=0).clamp(min=finfo.tiny)
        longest = torch.maximum(longest, length)
        weight.addcmul_(direction, length)
        residual.addcmul_(image, length, value=-1)
        size_before = size.clamp(min=finfo.tiny)
        missing_before = missing.clamp(min=finfo.tiny)
    return None if most else weight.to(gram.dtype)


def _factor(gram: Tensor, beta: Beta, make: Callable[[Tensor, Beta], Factor | None]) -> Factor:
    """The lower Cholesky factor of G + βI, with β raised where that is singular to working
    precision.
    """
    kept = _kept.get()
    if kept is not None and (found := kept.find(gram, beta)) is not None:
        return found
    raised = beta
    while (factor := make(gram, raised)) is None:
        assert math.isfinite(float(torch.as_tensor(raised).max()))
        raised = 10 * raised
    if kept is not None:
        kept.keep(gram, beta, factor)
    return factor


def factored(gram: Tensor, beta: Beta) -> Factor | None:
    """The lower factor of G + βI, if there is one, without the whole copy of G that LAPACK
    needs.
    """
    blocks: Factor = []
    for start in range(0, len(gram), COLUMNS):
        block = gram[start:, start : start + COLUMNS].clone()
        wide = block.shape[1]
        here = slice(start, start + wide)
        block.diagonal().add_(beta[here] if isinstance(beta, Tensor) else beta)
        for i, left in enumerate(blocks):
            rows = left[start - i * COLUMNS :]
            # a transposed view takes BLAS 1.6 times as long
            block.addmm_(rows, rows[:wide].mT.contiguous(), alpha=-1)
        corner, info = torch.linalg.cholesky_ex(block[:wide])
        if info:
            return None
        block[:wide] = corner
        block[wide:] = torch.linalg.solve_triangular(
            corner.mT, block[wide:], upper=True, left=False
        )
        blocks.append(block)
    return blocks


def _forward(factor: Factor, right: Tensor) -> Tensor:
    """L⁻¹ R, in place of R (M, C)."""
    for i, block in enumerate(factor):
        wide = block.shape[1]
        here = right[i * COLUMNS :][:wide]
        below = right[i * COLUMNS + wide :]
        here.copy_(torch.linalg.solve_triangular(block[:wide], here, upper=False))
        below.addmm_(block[wide:], here, alpha=-1)
    return right


def _substitute(factor: Factor, right: Tensor) -> Tensor:
    """(L Lᵀ)⁻¹ R, in place of R (M, C)."""
    _forward(factor, right)
    for i, block in reversed(list(enumerate(factor))):
        wide = block.shape[1]
        here = right[i * COLUMNS :][:wide]
        below = right[i * COLUMNS + wide :]
        here.addmm_(block[wide:].mT, below, alpha=-1)
        here.copy_(torch.linalg.solve_triangular(block[:wide].mT, here, upper=True))
    return right


def _times(gram: Tensor, weight: Tensor, beta: Beta) -> Tensor:
    """(G + βI) W in float64, without a float64 copy of G."""
    product = (beta.double()[:, None] if isinstance(beta, Tensor) else beta) * weight
    for start in range(0, len(gram), COLUMNS):
        here = slice(start, start + COLUMNS)
        product[here].addmm_(gram[here].double(), weight)
    return product
