"""Class Gaussians in few bytes: of every covariance the largest directions, and one variance for all others."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from safecl.heads.moments import ClassMoments
from safecl.heads.precision import precise
from safecl.heads.statistics import CHUNK

RANK = 16  # directions of a class
SAMPLES = 4  # for each picture


@dataclass(frozen=True)
class Spread:
    """A scatter matrix Σ_i s_i r_i r_iᵀ of rows (m, d) and signs (m,), and its trace, which may be more than theirs."""

    rows: Tensor
    signs: Tensor
    trace: float

    def __add__(self, other: "Spread") -> "Spread":
        return self._with(other, 1.0)

    def __sub__(self, other: "Spread") -> "Spread":
        return self._with(other, -1.0)

    def _with(self, other: "Spread", sign: float) -> "Spread":
        rows = torch.cat([self.rows, other.rows.to(self.rows)])
        signs = torch.cat([self.signs, sign * other.signs.to(self.signs)])
        return Spread(rows, signs, self.trace + sign * other.trace)


class LowRankGaussians(ClassMoments):
    """Counts (C,), means (C, d), and of each scatter matrix its ``RANK`` largest eigenvectors and its trace.

    Counts, means and traces add up exactly in any order, and so do the directions as long as a class has no more than
    ``RANK`` of them; what is cut off goes into the variance of all other directions. A class of one picture is a point.
    For d = 768 a class takes 31 kB: directions are float16, all else is float32.
    """

    names: ClassVar[tuple[str, ...]] = ("counts", "means", "remainders", "directions", "lengths", "traces")
    directions: Tensor
    lengths: Tensor
    traces: Tensor

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.register_buffer("directions", torch.zeros(0, RANK, width, dtype=torch.float16))
        self.register_buffer("lengths", torch.zeros(0, RANK))
        self.register_buffer("traces", torch.zeros(0))

    @property
    def pictures(self) -> int:
        return int(self.counts.sum())

    @torch.no_grad()
    def recall(self, most: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Features (n, d), class indices (n,) and weights (n,) that stand for all pictures.

        ``SAMPLES`` for each picture, or for each of ``most`` pictures if there are more. They come in pairs that are
        mirrored at the mean of their class, in directions that are orthogonal over the classes as far as they can be:
        their mean is exact, and their covariance is nearer to that of the class than that of independent samples.
        """
        share = SAMPLES * min(1.0, most / max(self.pictures, 1))
        pairs = (self.counts * share / 2).ceil().long()
        noise = _Directions(self.width, generator)
        for c in self.counts.nonzero()[:, 0].tolist():
            for start in range(0, int(pairs[c]), CHUNK // 2):
                z = noise.draw(min(CHUNK // 2, int(pairs[c]) - start)).to(self.means)
                x = self._colour(c, z)
                features = torch.cat([self.means[c] + x, self.means[c] - x])
                targets = torch.full((len(features),), c, device=features.device)
                yield features, targets, torch.ones_like(features[:, 0]) * (self.counts[c] / (2 * pairs[c]))

    def covariance(self, c: int, ridge: float = 0.0) -> Tensor:
        """Σ_c + ridge · I: (d, d)."""
        self._check(c)
        units, sizes, rest = self._deviations(c)
        return units.T * (sizes.square() - rest) @ units + (rest + ridge) * torch.eye(self.width).to(units)

    def _colour(self, c: int, noise: Tensor) -> Tensor:
        """Noise (n, d) with covariance I → noise with that of a class: (n, d)."""
        units, sizes, rest = self._deviations(c)
        return math.sqrt(rest) * noise + (noise @ units.T * (sizes - math.sqrt(rest))) @ units

    def _deviations(self, c: int) -> tuple[Tensor, Tensor, float]:
        """The directions of a class (r, d), their standard deviations (r,), and the variance of every other one."""
        lengths, freedom = self.lengths[c], max(int(self.counts[c]) - 1, 1)
        there = lengths > 0
        rest = max(float(self.traces[c]) - float(lengths.square().sum()), 0.0)
        rest /= freedom * max(self.width - int(there.sum()), 1)
        return self.directions[c][there].to(self.means), lengths[there] / freedom**0.5, rest

    def _spread_of(self, rows: Tensor) -> Spread:
        return Spread(rows, torch.ones_like(rows[:, 0]), float(rows.square().sum()))

    def _spread(self, c: int) -> Spread:
        rows = precise(self.directions[c]) * precise(self.lengths[c])[:, None]
        return Spread(rows, torch.ones_like(rows[:, 0]), float(self.traces[c]))

    def _put(self, c: int, spread: Spread) -> None:
        basis, inside = torch.linalg.qr(spread.rows.T)  # (d, k), (k, m)
        values, vectors = torch.linalg.eigh(inside * spread.signs @ inside.T)
        values, vectors = values.flip(0)[:RANK].clamp(min=0), vectors.flip(1)[:, :RANK]
        self.lengths[c], self.directions[c] = 0, 0
        self.lengths[c, : len(values)] = values.sqrt().to(self.lengths)
        self.directions[c, : len(values)] = (basis @ vectors).T.to(self.directions)
        self.traces[c] = max(spread.trace, 0.0)


class _Directions:
    """Rows of squared norm d from random orthogonal matrices, one matrix after the other."""

    def __init__(self, width: int, generator: torch.Generator) -> None:
        self.width, self.generator, self._left = width, generator, torch.zeros(0, width)

    def draw(self, count: int) -> Tensor:
        """(n, d)."""
        while len(self._left) < count:
            matrix = torch.linalg.qr(torch.randn(self.width, self.width, generator=self.generator)).Q
            self._left = torch.cat([self._left, math.sqrt(self.width) * matrix.T])
        rows, self._left = self._left[:count], self._left[count:]
        return rows
