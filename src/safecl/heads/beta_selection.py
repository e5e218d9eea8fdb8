"""Held-out errors of ridge regressions, for every β of a grid: the evidence from which β is chosen.

Two forms of the same regression: the dual form works on the kernel matrix (n, n) of n pictures and serves the whole
grid with one eigendecomposition; the primal form works on G (M, M) and solves once for every β.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from safecl.heads.precision import precise
from safecl.heads.solve import smallest_beta, solve
from safecl.heads.statistics import CHUNK, Statistics


def dual_errors(kernel: Tensor, one_hot: Tensor, fitted: int, betas: Sequence[float]) -> Tensor:
    """Squared error on the last rows of a ridge regression fitted on the first ``fitted`` ones, for every β: (B,).

    ``kernel``: all inner products (n, n); ``one_hot``: labels (n, C).
    """
    k, y = precise(kernel), precise(one_hot)
    values, vectors = torch.linalg.eigh(k[:fitted, :fitted])
    across, inside = k[fitted:, :fitted] @ vectors, vectors.T @ y[:fitted]
    errors = [(across @ (inside / (values.clamp(min=0) + beta)[:, None]) - y[fitted:]).square().sum() for beta in betas]
    return torch.stack(errors)


def primal_errors(
    statistics: Statistics,
    project: Callable[[Tensor], Tensor],
    features: Tensor,
    targets: Tensor,
    betas: Sequence[float],
) -> Tensor:
    """Squared error on ``features`` (n, d) of a ridge regression with these ``statistics``, for every β: (B,).

    ``project``: (n, d) → (n, M). Like every solve, these take no β below the rounding noise of G.
    """
    classes = max(statistics.sums.shape[1], int(targets.max()) + 1)
    floor = smallest_beta(statistics.gram)
    solved: dict[float, Tensor] = {}
    for beta in betas:
        beta = max(beta, floor)
        if beta in solved:
            continue
        weight = solve(statistics.gram, statistics.sums, beta)
        weight = F.pad(weight, (0, classes - weight.shape[1]))  # a class of which no picture was fitted gets zeros
        errors = [
            (precise(project(part) @ weight) - precise(F.one_hot(labels, classes))).square().sum()
            for part, labels in zip(torch.split(features, CHUNK), torch.split(targets, CHUNK), strict=True)
        ]
        solved[beta] = torch.stack(errors).sum()
    return torch.stack([solved[max(beta, floor)] for beta in betas])


def leave_one_out_errors(kernel: Tensor, one_hot: Tensor, betas: Sequence[float]) -> Tensor:
    """Squared error on each row of a ridge regression fitted on all other rows, for every β: (B, n).

    With the hat matrix H the error of row i is (y − Hy)_i / (1 − H_ii); one eigendecomposition serves the whole grid.
    """
    k, y = precise(kernel), precise(one_hot)
    values, vectors = torch.linalg.eigh(k)
    inside = vectors.T @ y
    errors = []
    for beta in betas:
        shrunk = 1 / (values.clamp(min=0) + beta)
        left = vectors @ (shrunk[:, None] * inside) / (vectors.square() @ shrunk)[:, None]
        errors.append(left.square().sum(dim=1))
    return torch.stack(errors)
