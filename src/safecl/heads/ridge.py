"""The training-free head: ridge regression on random ReLU features, from statistics that are plain sums.

Precision: projected features and statistics are float32, or float64 in a head that was made so with ``.double()``.
The weights are refined with float64 residuals (``heads/solve.py``). Matrix products must not use TF32, as is torch's
default.

Memory: G, and while solving the half of a factor: 1.5 × M² numbers, and some 3,500 × M to work with. Features are
expanded to M numbers a chunk at a time.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, PositiveFloat
from torch import Tensor, nn

from safecl.errors import SafeclError
from safecl.heads.solve import solve
from safecl.settings import Settings

CHUNK = 1024  # pictures, or columns of the projection, that are expanded to M or n values at a time
CHOOSING = 2048  # pictures of a session that take part in the choice of β, at most


class RidgeSettings(Settings):
    """The random projection and the grid for β."""

    size: int = Field(5000, gt=0, description="M, the number of random features")
    betas: tuple[PositiveFloat, ...] = Field(
        tuple(10.0 ** (k / 2) for k in range(-12, 3)), min_length=1, description="the grid from which β is chosen"
    )
    scale: Literal["relative", "absolute"] = Field(
        "relative", description="relative: β is in units of the mean squared norm of a projected feature"
    )


class Statistics(nn.Module):
    """G = Σ h hᵀ (M, M) and the class sums W̃ = Σ_c h (M, C) of Eq. (10). They add up in any order."""

    gram: Tensor
    sums: Tensor
    count: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("gram", torch.zeros(0, 0))
        self.register_buffer("sums", torch.zeros(size, 0))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    @property
    def unit(self) -> float:
        """Mean squared norm of a projected feature; 1 where there is nothing to measure."""
        return float(self.gram.diagonal().sum()) / max(int(self.count), 1) or 1.0

    def add(self, projected: Tensor, targets: Tensor) -> None:
        """Add a chunk: projected features (n, M), class indices (n,)."""
        if not len(self.gram):
            self.gram = projected.new_zeros(self.size, self.size)
        for start in range(0, self.size, CHUNK):  # the lower half, block by block; the other half mirrors it
            here = slice(start, start + CHUNK)
            self.gram[here, : here.stop].addmm_(projected[:, here].T, projected[:, : here.stop])
            self.gram[:start, here] = self.gram[here, :start].T
        missing = max(int(targets.max()) + 1 - self.sums.shape[1], 0)
        self.sums = F.pad(self.sums.to(projected), (0, missing))
        self.sums.index_add_(1, targets, projected.T)
        self.count = self.count + len(targets)


class RidgeHead(nn.Module):
    """z = W̃ᵀ (G + βI)⁻¹ h with h = ReLU(W_randᵀ φ(x)): Eq. (9) and (10)."""

    weight: Tensor
    errors: Tensor
    projection: Tensor

    def __init__(self, width: int, settings: RidgeSettings, seed: int = 0) -> None:
        super().__init__()
        self.settings, self.seed = settings, seed
        self.register_buffer("projection", random_projection(width, settings.size, seed), persistent=False)
        self.statistics = Statistics(settings.size)
        self.register_buffer("weight", torch.zeros(settings.size, 0))
        self.register_buffer("errors", torch.zeros(len(settings.betas)))

    def project(self, features: Tensor) -> Tensor:
        """h = ReLU(W_randᵀ φ): (N, d) → (N, M)."""
        return torch.relu(features.to(self.projection.dtype) @ self.projection)

    def logits(self, features: Tensor) -> Tensor:
        """z of Eq. (9): (N, d) → (N, C)."""
        return self.project(features) @ self.weight

    @torch.no_grad()
    def add(self, features: Tensor, targets: Tensor) -> None:
        """Add a session's features (N, d) and class indices (N,) to the statistics and to the evidence for β."""
        for start in range(0, len(features), CHUNK):
            here = slice(start, start + CHUNK)
            self.statistics.add(self.project(features[here]), targets[here])
        _check_finite(self.statistics.unit)
        self.errors = self.errors + self._held_out_errors(features, targets)

    @torch.no_grad()
    def solve(self) -> None:
        """Make the weights (M, C) from the statistics."""
        self.weight = solve(self.statistics.gram, self.statistics.sums, self.beta)

    @property
    def beta(self) -> float:
        """The value with the smallest held-out error over all sessions; the middle of the grid without evidence."""
        best = int(self.errors.argmin()) if self.errors.any() else len(self.errors) // 2
        return self._grid(self.statistics.unit)[best]

    def _grid(self, unit: float) -> list[float]:
        """The grid in absolute values."""
        return [beta * unit if self.settings.scale == "relative" else beta for beta in self.settings.betas]

    def _own_grid(self, kernel: Tensor) -> list[float]:
        """The grid relative to the features of ``kernel`` alone, so that the sessions may come in any order."""
        unit = float(kernel.diagonal().mean()) or 1.0
        _check_finite(unit)
        return self._grid(unit)

    @torch.no_grad()
    def leave_one_out(self, features: Tensor, targets: Tensor) -> Tensor:
        """Squared error on each of the features (N, d) of a head fitted on all the others, at the best β: (n,)."""
        kernel, one_hot = self._kernel(features, targets)
        errors = leave_one_out_errors(kernel, one_hot, self._own_grid(kernel))
        return errors[int(errors.mean(dim=1).argmin())]

    def _held_out_errors(self, features: Tensor, targets: Tensor) -> Tensor:
        """Squared error of every β on a fifth of this session, fitted on the rest of it: (B,)."""
        held = min(len(features), CHOOSING) // 5
        if not held:
            return torch.zeros_like(self.errors)
        kernel, one_hot = self._kernel(features, targets)
        return dual_errors(kernel, one_hot, len(kernel) - held, self._own_grid(kernel)).to(self.errors)

    def _kernel(self, features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Inner products (n, n) of the projected features that take part in a choice, shuffled, and labels (n, C)."""
        order = np.random.RandomState(self.seed).permutation(len(features))[:CHOOSING]
        positions = torch.from_numpy(order).to(features.device)
        chosen = features.to(self.projection.dtype)[positions]
        kernel = chosen.new_zeros(len(order), len(order))
        for start in range(0, self.settings.size, CHUNK):
            h = torch.relu(chosen @ self.projection[:, start : start + CHUNK])
            kernel.addmm_(h, h.T)
        return kernel, F.one_hot(targets[positions])

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # The number of classes is part of the state, not of the constructor.
        self.weight = self.weight.new_zeros(state_dict[prefix + "weight"].shape)
        for name in ("gram", "sums"):
            stored = state_dict[f"{prefix}statistics.{name}"]
            setattr(self.statistics, name, self.weight.new_zeros(stored.shape))
        super()._load_from_state_dict(state_dict, prefix, *args)


@lru_cache(maxsize=2)
def random_projection(width: int, size: int, seed: int) -> Tensor:
    """W_rand (d, M), which nobody may change. numpy's legacy generator is frozen for good, so it is never stored."""
    return torch.from_numpy(np.random.RandomState(seed).standard_normal((width, size)).astype(np.float32))


def dual_errors(kernel: Tensor, one_hot: Tensor, fitted: int, betas: Sequence[float]) -> Tensor:
    """Squared error on the last rows of a ridge regression fitted on the first ``fitted`` ones, for every β: (B,).

    ``kernel``: all inner products (n, n). One eigendecomposition serves the whole grid.
    """
    k, y = _precise(kernel), _precise(one_hot)
    values, vectors = torch.linalg.eigh(k[:fitted, :fitted])
    across, inside = k[fitted:, :fitted] @ vectors, vectors.T @ y[:fitted]
    errors = [(across @ (inside / (values.clamp(min=0) + beta)[:, None]) - y[fitted:]).square().sum() for beta in betas]
    return torch.stack(errors)


def leave_one_out_errors(kernel: Tensor, one_hot: Tensor, betas: Sequence[float]) -> Tensor:
    """Squared error on each row of a ridge regression fitted on all other rows, for every β: (B, n).

    With the hat matrix H the error of row i is (y − Hy)_i / (1 − H_ii); one eigendecomposition serves the whole grid.
    """
    k, y = _precise(kernel), _precise(one_hot)
    values, vectors = torch.linalg.eigh(k)
    inside = vectors.T @ y
    errors = []
    for beta in betas:
        shrunk = 1 / (values.clamp(min=0) + beta)
        left = vectors @ (shrunk[:, None] * inside) / (vectors.square() @ shrunk)[:, None]
        errors.append(left.square().sum(dim=1))
    return torch.stack(errors)


def _check_finite(unit: float) -> None:
    if not math.isfinite(unit):
        raise SafeclError("The backbone gave features that are not finite; check its weights, or use fp32.")


def _precise(tensor: Tensor) -> Tensor:
    """In float64, where there is such a thing."""
    return tensor.double() if tensor.device.type == "cuda" else tensor.cpu().double()
