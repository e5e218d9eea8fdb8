"""A normal distribution of the features of every class: count, mean and covariance, from which features are sampled."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from safecl.heads.moments import ClassMoments, split
from safecl.heads.packing import pack, unpack
from safecl.heads.precision import check_finite, precise

CLASSES_AT_A_TIME = 16  # whose covariances are factored together


class ClassGaussians(ClassMoments):
    """The covariance of a class is its scatter matrix over n − 1, kept as d (d + 1) / 2 float32 numbers.

    A class with one picture has the shared covariance. ``ridge`` is added to the diagonal.
    """

    names: ClassVar[tuple[str, ...]] = ("counts", "means", "remainders", "scatter")
    scatter: Tensor

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.register_buffer("scatter", pack(torch.zeros(0, width, width)))

    @torch.no_grad()
    def covariance(self, c: int, ridge: float = 1e-4) -> Tensor:
        """Σ_c + ridge · I: (d, d)."""
        self._check(c)
        return self._covariances([c], ridge)[0].to(self.means)

    @torch.no_grad()
    def shared_covariance(self) -> Tensor:
        """The sum of all scatter matrices over N − C: (d, d)."""
        return self._shared().to(self.means)

    @torch.no_grad()
    def sample(
        self,
        count: int,
        generator: torch.Generator,
        scale: Sequence[float] | Tensor | None = None,
        ridge: float = 1e-4,
    ) -> tuple[Tensor, Tensor]:
        """Features (n, d) from N(κ_c μ_c, Σ_c + ridge · I), and their classes (n,), class after class.

        ``count``: of every class that has pictures; ``scale``: κ of each of these, or 1. ``generator`` is one of the
        CPU, so that every device draws the same numbers. Where rounding leaves a singular covariance without a Cholesky
        factor, its diagonal is raised until there is one.
        """
        classes = self.counts.nonzero()[:, 0]
        chosen: list[int] = classes.tolist()
        factors = torch.as_tensor([1.0] * len(chosen) if scale is None else scale).tolist()
        parts = [self.means[:0]]
        for c, factor, root in zip(chosen, factors, self._roots(chosen, ridge), strict=True):
            noise = torch.randn(count, self.width, generator=generator).to(self.means)
            parts.append(torch.addmm(factor * self.means[c], noise, root.T))
        return torch.cat(parts), classes.repeat_interleave(count)

    @torch.no_grad()
    def shift(self, offset: Tensor) -> None:
        """Move the means by ``offset`` (C, d)."""
        check_finite(offset)
        means = precise(self.means) + precise(self.remainders)
        self.means, self.remainders = split(means + precise(offset).to(means), self.means)

    def _spread_of(self, rows: Tensor) -> Tensor:
        return pack(rows.T @ rows)

    def _spread(self, c: int) -> Tensor:
        return precise(self.scatter[c])

    def _put(self, c: int, spread: Tensor) -> None:
        self.scatter[c] = spread.to(self.scatter)

    def _covariances(self, classes: list[int], ridge: float) -> Tensor:
        """Σ_c + ridge · I of these classes: (K, d, d) in float64."""
        counts = self.counts[classes].tolist()
        found = precise(self.scatter.new_empty(len(classes), self.width, self.width))
        if min(counts) < 2:
            found[:] = self._shared()
        for i, (c, count) in enumerate(zip(classes, counts, strict=True)):
            if count > 1:
                found[i] = unpack(precise(self.scatter[c]), self.width) / (count - 1)
        found.diagonal(dim1=1, dim2=2).add_(ridge)
        return found

    def _shared(self) -> Tensor:
        return unpack(precise(self.scatter.sum(dim=0)), self.width) / self.freedom

    def _roots(self, classes: list[int], ridge: float) -> Iterator[Tensor]:
        """The lower Cholesky factor (d, d) of the covariance of each class, in the kept precision."""
        for start in range(0, len(classes), CLASSES_AT_A_TIME):
            some = classes[start : start + CLASSES_AT_A_TIME]
            yield from _cholesky(self._covariances(some, ridge)).to(self.means)


def _cholesky(matrices: Tensor) -> Tensor:
    """Lower factors (K, d, d). ``matrices`` (K, d, d) without one are changed: their diagonals are raised."""
    factors: Tensor
    factors, failed = torch.linalg.cholesky_ex(matrices)
    diagonals = matrices.diagonal(dim1=1, dim2=2)
    more = (torch.finfo(torch.float32).eps * diagonals.mean(dim=1)).clamp(min=torch.finfo(torch.float32).tiny)
    while failed.any() and more.isfinite().all():
        which = failed.nonzero()[:, 0]
        diagonals[which] = diagonals[which] + more[which, None]
        factors[which], failed[which] = torch.linalg.cholesky_ex(matrices[which])
        more = 10 * more
    return factors
