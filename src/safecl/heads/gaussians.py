"""Normal distributions of the features of the classes, each with a covariance of its own or all
with one.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from safecl.heads.protocol import Kind, PerClass, Trained
from safecl.heads.tensors import added, check_finite, pack, precise, take_shapes, unpack

CLASSES_AT_A_TIME = 16  # whose covariances are factored together


class ClassMoments(PerClass, ABC):
    """Counts (C,), means (C, d) and centred scatter matrices Σ (x − μ)(x − μ)ᵀ of the features of
    every class.

    They add up over batches, sessions, processes and models in any order, up to rounding (the
    parallel update of Chan, Golub and LeVeque: no second moment about zero is formed, so a common
    offset of the features costs no digits). Arithmetic is float64. Scatter matrices are kept as d
    (d + 1) / 2 float32 numbers.
    """

    kind: Kind = "sum"

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.counts: Tensor = nn.Buffer(torch.zeros(0, dtype=torch.int64))
        self.means: Tensor = nn.Buffer(torch.zeros(0, width))
        # what float32 leaves of the means
        self.remainders: Tensor = nn.Buffer(torch.zeros(0, width))
        shape = (0, width, width) if "scatter" in self.rows else (width, width)
        self.scatter: Tensor = nn.Buffer(pack(torch.zeros(shape)))

    @property
    def classes(self) -> int:
        return len(self.counts)

    def _load_from_state_dict(
        self, state_dict: dict[str, Tensor], prefix: str, *args: object
    ) -> None:
        take_shapes(self, state_dict, prefix, ("means", "scatter"))
        self.width = self.means.shape[1]
        super()._load_from_state_dict(state_dict, prefix, *args)
        counts = {len(getattr(self, name)) for name in self.rows}
        packed = pack(torch.zeros(self.width, self.width)).shape
        if (
            len(counts) > 1
            or self.remainders.shape != self.means.shape
            or self.scatter.shape[-2:] != packed
        ):
            raise ValueError(f"the tensors of {prefix.rstrip('.')} are of several sizes")

    def clear(self) -> None:
        """No pictures of any class."""
        for name in ("counts", "means", "remainders", "scatter"):
            setattr(self, name, torch.zeros_like(getattr(self, name)))

    @property
    def freedom(self) -> int:
        """Pictures less classes that have any, and at least 1: what the sum of all scatter matrices
        is divided by.
        """
        return max(int(self.counts.sum()) - int((self.counts > 0).sum()), 1)

    def add(self, features: Tensor, targets: Tensor) -> None:
        """Add features (N, d) with class indices (N,)."""
        check_finite(features)
        present = torch.unique(targets).tolist()
        self._grow(max(present, default=-1) + 1)
        for c in present:
            own = precise(features[targets == c])
            mean = own.mean(dim=0)
            self._combine(c, len(own), mean, _scatter(own - mean))

    @abstractmethod
    def _put(self, c: int, spread: Tensor) -> None:
        """Add to the packed scatter matrix of a class."""

    def _combine(self, c: int, count: int, mean: Tensor, spread: Tensor) -> None:
        """Add ``count`` pictures of class ``c`` with this mean (d,) and scatter matrix."""
        old = int(self.counts[c])
        before = self._mean(c)
        apart = mean.to(before) - before
        self._put(c, spread + _between(apart, old, count) if old else spread)
        self._set_means(c, before + apart * (count / (old + count)))
        self.counts[c] += count

    def _grow(self, classes: int) -> None:
        """Make room for so many classes at least."""
        missing = max(classes - self.classes, 0)
        for name in self.rows:
            own = getattr(self, name)
            setattr(self, name, torch.cat([own, own.new_zeros(missing, *own.shape[1:])]))

    def _mean(self, c: int | slice) -> Tensor:
        return precise(self.means[c]) + precise(self.remainders[c])

    def _set_means(self, c: int | slice, values: Tensor) -> None:
        self.means[c] = values.to(self.means)
        self.remainders[c] = (values - precise(self.means[c]).to(values)).to(self.means)


class ClassGaussians(Trained, ClassMoments):
    """The covariance of a class is its scatter matrix over n − 1, or the shared one if it has one
    picture.

    They are of networks that go on learning: the features of two models do not add up.
    """

    rows = ("counts", "means", "remainders", "scatter")
    diagonal = False  # draw from the diagonals alone

    def sample(
        self,
        count: int,
        generator: torch.Generator,
        scale: Sequence[float] | Tensor | None = None,
        ridge: float = 1e-4,
    ) -> tuple[Tensor, Tensor]:
        """Features (n, d) from N(κ_c μ_c, Σ_c + ridge · I), and their classes (n,), class after
        class.

        ``count``: of every class that has pictures; ``scale``: κ of each of these, or 1.
        ``generator`` is one of the CPU, so that every device draws the same numbers. Where rounding
        leaves a singular covariance without a Cholesky factor, its diagonal is raised until there
        is one.
        """
        classes = self.counts.nonzero()[:, 0]
        chosen: list[int] = classes.tolist()
        factors = torch.as_tensor([1.0] * len(chosen) if scale is None else scale).tolist()
        parts = [self.means[:0]]
        for c, factor, root in zip(chosen, factors, self._roots(chosen, ridge), strict=True):
            noise = torch.randn(count, self.width, generator=generator).to(self.means)
            parts.append(torch.addmm(factor * self.means[c], noise, root.T))
        return torch.cat(parts), classes.repeat_interleave(count)

    def shift(self, offset: Tensor) -> None:
        """Move the means by ``offset`` (C, d)."""
        check_finite(offset)
        every = slice(None)
        self._set_means(every, self._mean(every) + precise(offset).to(precise(self.means)))

    def _put(self, c: int, spread: Tensor) -> None:
        self.scatter[c] = (precise(self.scatter[c]) + spread.to(precise(self.scatter))).to(
            self.scatter
        )

    def covariances(self, classes: list[int], ridge: float) -> Tensor:
        """Σ_c + ridge · I of these classes: (K, d, d) in float64."""
        found = unpack(precise(self.scatter[classes]), self.width)
        counts = self.counts[classes].to(found.device)
        found /= (counts - 1).clamp(min=1)[:, None, None]
        if counts.min() < 2:
            found[counts < 2] = self._shared()
        found.diagonal(dim1=1, dim2=2).add_(ridge)
        return found

    def _shared(self) -> Tensor:
        return unpack(precise(self.scatter.sum(dim=0)), self.width) / self.freedom

    def _roots(self, classes: list[int], ridge: float) -> Iterator[Tensor]:
        """The lower Cholesky factor (d, d) of the covariance of each class, in the kept
        precision.
        """
        for start in range(0, len(classes), CLASSES_AT_A_TIME):
            some = classes[start : start + CLASSES_AT_A_TIME]
            found = self.covariances(some, ridge)
            yield from cholesky(
                found * torch.eye(self.width).to(found) if self.diagonal else found
            ).to(self.means)


class SharedGaussians(ClassMoments):
    """All classes have one covariance. For d = 768 a class takes 6 kB, with an offset 9, and all
    1.2 MB more.

    ``offsets`` (C, ``moving``): how far pictures of each class have moved, in the mean; kept under
    another label.
    """

    rows = ("counts", "means", "remainders", "offsets")
    by_difference: ClassVar[tuple[str, ...]] = (*rows, "scatter")

    def __init__(self, width: int, moving: int = 0) -> None:
        super().__init__(width)
        self.offsets: Tensor = nn.Buffer(torch.zeros(0, moving))

    def move(self, offsets: Tensor, targets: Tensor) -> None:
        """Some of the pictures, of classes (n,), have these offsets (n, d)."""
        for c in torch.unique(targets).tolist():
            own = offsets[targets == c]
            self.offsets[c] = torch.lerp(
                self.offsets[c], own.mean(dim=0), len(own) / int(self.counts[c])
            )

    def merge(self, now: Self, before: Self, index: Tensor) -> None:
        """Add the pictures that ``now`` has more than ``before``; its class i is class ``index[i]``
        here, −1: none.
        """
        own, more, less = (
            precise(each.offsets) * precise(each.counts)[:, None] for each in (self, now, before)
        )
        places = index[: now.classes].tolist()
        self._grow(max(places, default=-1) + 1)
        for c, place in enumerate(places):
            old = int(before.counts[c]) if c < before.classes else 0
            count = int(now.counts[c]) - old
            mean = now._mean(c)
            none = torch.zeros_like(precise(self.scatter))
            if count <= 0 or place < 0:
                continue
            rest, between = _rest(old + count, mean, old, before._mean(c)) if old else (mean, none)
            self._combine(place, count, rest, none - between)
        self._put(0, precise(now.scatter) - precise(before.scatter))
        self.offsets = (
            added(own, more, less, index) / precise(self.counts)[:, None].clamp(min=1)
        ).to(self.offsets)

    def join(self, one: int, other: int) -> None:
        """Exactly the moments of both classes' pictures together."""
        if self.classes and self.counts[other]:  # of none there is nothing to join, and no mean
            self.offsets[one].lerp_(
                self.offsets[other], self.counts[other] / self.counts[[one, other]].sum()
            )
            self._combine(
                one,
                int(self.counts[other]),
                self._mean(other),
                torch.zeros_like(precise(self.scatter)),
            )
            self.counts[other] = 0

    def correct(self, features: Tensor | None, old: Tensor, new: Tensor) -> None:
        """Take features (n, d), with others beside them or not, out of the classes ``old``, and add
        them to ``new``.
        """
        if features is None:
            return
        features = features[:, : self.width]
        moved = (old >= 0) & (new >= 0)
        for c in torch.unique(old[old >= 0]).tolist():
            own = precise(features[old == c])
            mean = own.mean(dim=0)
            rest, between = _rest(int(self.counts[c]), self._mean(c), len(own), mean)
            self._set_means(c, rest)
            self._put(c, -_scatter(own - mean) - between)
            self.counts[c] -= len(own)
        self.add(features[new >= 0], new[new >= 0])
        self.move(self.offsets[old[moved]], new[moved])

    def drop_class(self, index: int) -> None:
        """Remove a class; those after it move up by one.

        Pictures that it still has leave the scatter of all only by being counted: the covariance is
        what it was. Pictures that ``correct`` has moved to no class before have left exactly. A sum
        of squares per class and dimension would say hardly more of the rest: for features of ViTs
        the covariance is then 16 to 23 % off, for 16 to 24 % by counting.
        """
        before = self.freedom
        super().drop_class(index)
        self.scatter = self.scatter * (self.freedom / before)

    def covariance(self) -> Tensor:
        """Of a class about its mean: (d, d)."""
        return (unpack(precise(self.scatter), self.width) / self.freedom).to(self.means)

    def sample(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Features (n, d), as many of every class as of any other, to one, and their classes
        (n,).
        """
        classes = self.counts.nonzero()[:, 0].cpu()
        drawn = classes[torch.arange(count) * len(classes) // count].to(self.means.device)
        values, vectors = torch.linalg.eigh(precise(self.covariance()))
        # whatever the signs
        root = (vectors * values.clamp(min=0).sqrt() @ vectors.T).to(self.means)
        return (
            torch.addmm(
                self.means[drawn],
                torch.randn(count, self.width, generator=generator).to(root),
                root,
            ),
            drawn,
        )

    def _put(self, c: int, spread: Tensor) -> None:
        self.scatter = (precise(self.scatter) + spread.to(precise(self.scatter))).to(self.scatter)


def _scatter(rows: Tensor) -> Tensor:
    """The packed scatter matrix of centred features (n, d)."""
    return pack(rows.T @ rows)


def _between(apart: Tensor, one: int, other: int) -> Tensor:
    """What two sets of so many pictures, whose means are ``apart`` (d,), have more together than
    each alone.
    """
    return _scatter(apart[None] * (one * other / (one + other)) ** 0.5)


def _rest(count: int, mean: Tensor, gone: int, their_mean: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of ``count`` pictures without ``gone`` of them, and what both have more together
    than each alone.
    """
    theirs = their_mean.to(mean)
    rest = (
        theirs + (mean - theirs) * (count / (count - gone))
        if gone < count
        else torch.zeros_like(mean)
    )
    return rest, _between(rest - theirs, gone, max(count - gone, 0))


def cholesky(matrices: Tensor) -> Tensor:
    """Lower factors (K, d, d). ``matrices`` (K, d, d) without one are changed: their diagonals are
    raised.
    """
    factors: Tensor
    factors, failed = torch.linalg.cholesky_ex(matrices)
    diagonals = matrices.diagonal(dim1=1, dim2=2)
    more = (torch.finfo(torch.float32).eps * diagonals.mean(dim=1)).clamp(
        min=torch.finfo(torch.float32).tiny
    )
    while failed.any() and more.isfinite().all():
        which = failed.nonzero()[:, 0]
        diagonals[which] = diagonals[which] + more[which, None]
        factors[which], failed[which] = torch.linalg.cholesky_ex(matrices[which])
        more = 10 * more
    return factors
