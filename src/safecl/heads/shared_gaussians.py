"""Gaussians of all classes with one covariance: where the features of a network lie, in few bytes."""

from typing import ClassVar, Self

import torch
from torch import Tensor

from safecl.heads.moments import ClassMoments
from safecl.heads.packing import pack, unpack
from safecl.heads.precision import precise


class SharedGaussians(ClassMoments):
    """Counts (C,), means (C, d), and the sum of all scatter matrices as d (d + 1) / 2 numbers.

    They add up in any order. For d = 768 a class takes 6 kB, and all together 1.2 MB more.
    """

    names: ClassVar[tuple[str, ...]] = ("counts", "means", "remainders")
    scatter: Tensor

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.register_buffer("scatter", pack(torch.zeros(width, width)))

    @torch.no_grad()
    def merge(self, now: Self, before: Self | None = None, index: Tensor | None = None) -> None:
        super().merge(now, before, index)
        self._put(0, precise(now.scatter) - (0 if before is None else precise(before.scatter)))

    @torch.no_grad()
    def drop_class(self, c: int) -> None:
        """Remove a class; those after it move up by one. The covariance is what it was."""
        before = self.freedom
        super().drop_class(c)
        self.scatter = self.scatter * (self.freedom / before)

    def covariance(self) -> Tensor:
        """Of a class about its mean: (d, d)."""
        return (unpack(precise(self.scatter), self.width) / self.freedom).to(self.means)

    @torch.no_grad()
    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Features (n, d), as many of every class as of any other, to one."""
        classes = self.counts.nonzero()[:, 0].cpu()
        chosen = classes[torch.arange(count) * len(classes) // count].to(self.means.device)
        values, vectors = torch.linalg.eigh(precise(self.covariance()))
        root = (vectors * values.clamp(min=0).sqrt() @ vectors.T).to(self.means)  # whatever the signs
        return torch.addmm(self.means[chosen], torch.randn(count, self.width, generator=generator).to(root), root)

    def _spread_of(self, rows: Tensor) -> Tensor:
        return pack(rows.T @ rows)

    def _spread(self, c: int) -> Tensor:
        return torch.zeros_like(precise(self.scatter))  # no class has one of its own

    def _put(self, c: int, spread: Tensor) -> None:
        self.scatter = (precise(self.scatter) + spread.to(precise(self.scatter))).to(self.scatter)
