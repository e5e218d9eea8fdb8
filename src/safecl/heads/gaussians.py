"""A normal distribution of the features of every class: count, mean and covariance, from which features are sampled."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from safecl.heads.classes import without
from safecl.heads.packing import pack, unpack
from safecl.heads.precision import check_finite, precise

NAMES = ("counts", "means", "remainders", "scatter")
CLASSES = 16  # whose covariances are factored at a time


class ClassGaussians(nn.Module):
    """Counts (C,), means (C, d) and centred scatter matrices Σ (x − μ)(x − μ)ᵀ of the features of every class.

    They add up over batches, sessions, processes and models in any order, up to rounding (the parallel update of Chan,
    Golub and LeVeque: no second moment about zero is formed, so a common offset of the features costs no digits).
    ``full`` keeps one scatter matrix a class, ``shared`` one for all: the sum over the classes. A matrix is kept as
    d (d + 1) / 2 float32 numbers; arithmetic is float64.

    The covariance of a class is its scatter matrix over n − 1. A class with one picture, and with ``shared`` every
    class, has the pooled covariance: the sum of all scatter matrices over N − C. ``ridge`` is added to the diagonal.
    """

    counts: Tensor
    means: Tensor
    remainders: Tensor
    scatter: Tensor

    def __init__(self, width: int, covariance: Literal["full", "shared"] = "full") -> None:
        super().__init__()
        if covariance not in ("full", "shared"):
            raise ValueError(f"The covariance {covariance!r} must be full or shared.")
        self.width, self.shared = width, covariance == "shared"
        self.register_buffer("counts", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("means", torch.zeros(0, width))
        self.register_buffer("remainders", torch.zeros(0, width))  # what float32 leaves of the means
        self.register_buffer("scatter", pack(torch.zeros(int(self.shared), width, width)))

    @property
    def classes(self) -> int:
        return len(self.counts)

    @torch.no_grad()
    def add(self, features: Tensor, targets: Tensor) -> None:
        """Add features (N, d) with class indices (N,)."""
        check_finite(features)
        present = torch.unique(targets).tolist()
        self._grow(max(present, default=-1) + 1)
        for c in present:
            own = precise(features[targets == c])
            mean = own.mean(dim=0)
            own -= mean
            self._combine(c, len(own), mean, own.T @ own)

    @torch.no_grad()
    def merge(self, other: "ClassGaussians") -> None:
        """Add the pictures of ``other``, in which the same index stands for the same class."""
        if other.shared != self.shared:
            raise ValueError("shared and full covariances cannot be merged")
        self._grow(other.classes)
        for c in other.counts.nonzero()[:, 0].tolist():
            scatter = torch.zeros(1, 1) if self.shared else unpack(precise(other.scatter[c]), self.width)
            self._combine(c, int(other.counts[c]), other._mean(c), scatter)
        if self.shared:  # one matrix, of all classes
            own = precise(self.scatter)
            self.scatter = (own + precise(other.scatter).to(own)).to(self.scatter)

    @torch.no_grad()
    def drop_class(self, c: int) -> None:
        """Remove a class; those after it move up by one. A shared scatter matrix keeps the share of the class."""
        for name in ("counts", "means", "remainders") if self.shared else NAMES:
            setattr(self, name, without(getattr(self, name), c))

    def mean(self, c: int) -> Tensor:
        """μ_c: (d,)."""
        self._check(c)
        return self.means[c]

    @torch.no_grad()
    def covariance(self, c: int, ridge: float = 1e-4) -> Tensor:
        """Σ_c + ridge · I: (d, d)."""
        self._check(c)
        return self._covariances([c], ridge)[0].to(self.means)

    @torch.no_grad()
    def sample(
        self,
        counts: int | Sequence[int],
        generator: torch.Generator,
        classes: Sequence[int] | None = None,
        scale: Sequence[float] | Tensor | None = None,
        ridge: float = 1e-4,
    ) -> tuple[Tensor, Tensor]:
        """Features (n, d) from N(κ_c μ_c, Σ_c + ridge · I), and their classes (n,), class after class.

        ``counts``: how many of every class, or of each; ``classes``: all that have pictures, unless given; ``scale``:
        κ of each, or 1. ``generator`` is one of the CPU, so that every device draws the same numbers. Where rounding
        leaves a singular covariance without a Cholesky factor, its diagonal is raised until there is one.
        """
        chosen = self.counts.nonzero()[:, 0].tolist() if classes is None else list(classes)
        for c in chosen:
            self._check(c)
        numbers = [counts] * len(chosen) if isinstance(counts, int) else list(counts)
        factors = torch.as_tensor([1.0] * len(chosen) if scale is None else scale).tolist()
        wanted = list(zip(chosen, numbers, factors, strict=True))
        parts = [self.means[:0]]
        for (c, number, factor), root in zip(wanted, self._roots(chosen, ridge), strict=True):
            noise = torch.randn(number, self.width, generator=generator).to(self.means)
            parts.append(torch.addmm(factor * self.means[c], noise, root.T))
        targets = torch.tensor(chosen, dtype=torch.int64).repeat_interleave(torch.tensor(numbers, dtype=torch.int64))
        return torch.cat(parts), targets.to(self.means.device)

    @torch.no_grad()
    def transform(self, matrix: Tensor | None = None, offset: Tensor | None = None) -> None:
        """Move means and covariances as features x → A x + b do: ``matrix`` A (d, d), ``offset`` b (d,) or (C, d)."""
        means = precise(self.means) + precise(self.remainders)
        if matrix is not None:
            check_finite(matrix)
            a = precise(matrix).to(means)
            means = means @ a.T
            for i, packed in enumerate(self.scatter):
                moved = a @ unpack(precise(packed), self.width) @ a.T
                self.scatter[i] = pack((moved + moved.T) / 2).to(self.scatter)
        if offset is not None:
            check_finite(offset)
            means = means + precise(offset).to(means)
        self.means, self.remainders = _split(means, self.means)

    def _combine(self, c: int, count: int, mean: Tensor, scatter: Tensor) -> None:
        """Add ``count`` pictures of class ``c`` with this mean (d,) and scatter matrix (d, d)."""
        old, before = int(self.counts[c]), self._mean(c)
        apart = mean.to(before) - before
        total = scatter.to(before) + torch.outer(apart, apart) * (old * count / (old + count))
        slot = 0 if self.shared else c
        self.scatter[slot] = (precise(self.scatter[slot]) + pack(total)).to(self.scatter)
        self.means[c], self.remainders[c] = _split(before + apart * (count / (old + count)), self.means)
        self.counts[c] += count

    def _grow(self, classes: int) -> None:
        """Make room for so many classes at least."""
        missing = max(classes - self.classes, 0)
        for name in ("counts", "means", "remainders") if self.shared else NAMES:
            own = getattr(self, name)
            setattr(self, name, torch.cat([own, own.new_zeros(missing, *own.shape[1:])]) if missing else own)

    def _mean(self, c: int) -> Tensor:
        return precise(self.means[c]) + precise(self.remainders[c])

    def _covariances(self, classes: list[int], ridge: float) -> Tensor:
        """Σ_c + ridge · I of these classes: (K, d, d) in float64."""
        counts = self.counts[classes].tolist()
        found = precise(self.scatter.new_empty(len(classes), self.width, self.width))
        if self.shared or min(counts) < 2:
            freedom = int(self.counts.sum()) - int((self.counts > 0).sum())
            found[:] = unpack(precise(self.scatter.sum(dim=0)), self.width) / max(freedom, 1)
        for i, (c, count) in enumerate(zip(classes, counts, strict=True)):
            if not self.shared and count > 1:
                found[i] = unpack(precise(self.scatter[c]), self.width) / (count - 1)
        found.diagonal(dim1=1, dim2=2).add_(ridge)
        return found

    def _roots(self, classes: list[int], ridge: float) -> Iterator[Tensor]:
        """The lower Cholesky factor (d, d) of the covariance of each class, in the kept precision."""
        if self.shared and classes:
            (root,) = _cholesky(self._covariances(classes[:1], ridge)).to(self.means)
            yield from [root] * len(classes)
            return
        for start in range(0, len(classes), CLASSES):
            yield from _cholesky(self._covariances(classes[start : start + CLASSES], ridge)).to(self.means)

    def _check(self, c: int) -> None:
        if not 0 <= c < self.classes or not self.counts[c]:
            raise ValueError(f"class {c} has no pictures")

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # The number of classes is part of the state, not of the constructor.
        for name in NAMES:
            setattr(self, name, getattr(self, name).new_zeros(state_dict[prefix + name].shape))
        super()._load_from_state_dict(state_dict, prefix, *args)


def _split(values: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """float64 values as two tensors of the kind of ``like``, whose sum they are."""
    high = values.to(like)
    return high, (values - precise(high).to(values)).to(like)


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
