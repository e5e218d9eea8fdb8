"""Counts, means and scatter matrices of the features of every class, in whatever form these matrices are kept."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from safecl.heads.classes import take_shapes, without
from safecl.heads.precision import check_finite, precise


class ClassMoments(nn.Module, ABC):
    """Counts (C,), means (C, d) and centred scatter matrices Σ (x − μ)(x − μ)ᵀ of the features of every class.

    They add up over batches, sessions, processes and models in any order, up to rounding (the parallel update of Chan,
    Golub and LeVeque: no second moment about zero is formed, so a common offset of the features costs no digits).
    Arithmetic is float64.
    """

    by_difference: ClassVar[tuple[str, ...]] = ("counts", "means", "remainders", "scatter")
    names: ClassVar[tuple[str, ...]]  # of the buffers that have a row per class
    counts: Tensor
    means: Tensor
    remainders: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.register_buffer("counts", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("means", torch.zeros(0, width))
        self.register_buffer("remainders", torch.zeros(0, width))  # what float32 leaves of the means

    @property
    def classes(self) -> int:
        return len(self.counts)

    @property
    def freedom(self) -> int:
        """Pictures less classes that have any, and at least 1: what the sum of all scatter matrices is divided by."""
        return max(int(self.counts.sum()) - int((self.counts > 0).sum()), 1)

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
            self._combine(c, len(own), mean, self._spread_of(own))

    @torch.no_grad()
    def merge(self, now: Self, before: Self | None = None, index: Tensor | None = None) -> None:
        """Add the pictures that ``now`` has and ``before`` had not; its class i is class ``index[i]`` here, −1: none.

        Without ``before`` all are added; without ``index`` the same index stands for the same class.
        """
        places = list(range(now.classes)) if index is None else index[: now.classes].tolist()
        self._grow(max(places, default=-1) + 1)
        for c, place in enumerate(places):
            old = int(before.counts[c]) if before is not None and c < before.classes else 0
            count, mean = int(now.counts[c]) - old, now._mean(c)
            if count <= 0 or place < 0:
                continue
            spread = now._spread(c)
            if before is not None and old:  # the update of ``_combine`` the other way round
                start = before._mean(c).to(mean)
                mean = start + (mean - start) * ((old + count) / count)
                between = self._spread_of((mean - start)[None] * (old * count / (old + count)) ** 0.5)
                spread = spread - before._spread(c) - between
            self._combine(place, count, mean, spread)

    @torch.no_grad()
    def drop_class(self, c: int) -> None:
        """Remove a class; those after it move up by one."""
        for name in self.names:
            setattr(self, name, without(getattr(self, name), c))

    def mean(self, c: int) -> Tensor:
        """μ_c: (d,)."""
        self._check(c)
        return self.means[c]

    @abstractmethod
    def _spread_of(self, rows: Tensor) -> Any:
        """The scatter matrix of centred features (n, d). Such matrices can be added and subtracted."""

    @abstractmethod
    def _spread(self, c: int) -> Any:
        """The scatter matrix of a class."""

    @abstractmethod
    def _put(self, c: int, spread: Any) -> None:
        """Set the scatter matrix of a class."""

    def _combine(self, c: int, count: int, mean: Tensor, spread: Any) -> None:
        """Add ``count`` pictures of class ``c`` with this mean (d,) and scatter matrix."""
        old, before = int(self.counts[c]), self._mean(c)
        apart = mean.to(before) - before
        if old:
            spread = self._spread(c) + spread + self._spread_of(apart[None] * (old * count / (old + count)) ** 0.5)
        self._put(c, spread)
        self.means[c], self.remainders[c] = split(before + apart * (count / (old + count)), self.means)
        self.counts[c] += count

    def _grow(self, classes: int) -> None:
        """Make room for so many classes at least."""
        missing = max(classes - self.classes, 0)
        for name in self.names:
            own = getattr(self, name)
            setattr(self, name, torch.cat([own, own.new_zeros(missing, *own.shape[1:])]) if missing else own)

    def _mean(self, c: int) -> Tensor:
        return precise(self.means[c]) + precise(self.remainders[c])

    def _check(self, c: int) -> None:
        if not 0 <= c < self.classes or not self.counts[c]:
            raise ValueError(f"class {c} has no pictures")

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        take_shapes(self, state_dict, prefix, self.names)
        super()._load_from_state_dict(state_dict, prefix, *args)


def split(values: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """float64 values as two tensors of the kind of ``like``, whose sum they are."""
    high = values.to(like)
    return high, (values - precise(high).to(values)).to(like)
