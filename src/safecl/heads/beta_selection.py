"""Held-out errors of ridge regressions, for every β of a grid: the evidence from which β is chosen."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from safecl.heads.solve import smallest_beta, solve
from safecl.heads.statistics import CHUNK, Statistics
from safecl.heads.tensors import precise


def dual_errors(kernel: Tensor, one_hot: Tensor, fitted: int, betas: Sequence[float]) -> Tensor:
    """For every β, squared error on the last rows of a kernel (n, n) with labels (n, C), fitted on the first: (B,)."""
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
    """Squared error on features (n, d) of a regression with these ``statistics``, for every β: (B,)."""
    classes = max(statistics.sums.shape[1], int(targets.max()) + 1)
    raised = [max(beta, smallest_beta(statistics.gram)) for beta in betas]
    solved: dict[float, Tensor] = {}
    for beta in set(raised):
        weight = solve(statistics.gram, statistics.sums, beta)
        weight = F.pad(weight, (0, classes - weight.shape[1]))  # a class of which no picture was fitted gets zeros
        errors = [
            (precise(project(part) @ weight) - precise(F.one_hot(labels, classes))).square().sum()
            for part, labels in zip(torch.split(features, CHUNK), torch.split(targets, CHUNK), strict=True)
        ]
        solved[beta] = torch.stack(errors).sum()
    return torch.stack([solved[beta] for beta in raised])


def leave_one_out_errors(kernel: Tensor, one_hot: Tensor, betas: Sequence[float], views: int = 1) -> Tensor:
    """Squared error on each picture of a ridge regression fitted on all others, for every β: (B, n).

    A picture has ``views`` rows of the kernel (n · v, n · v), and is judged by the first of them. With P = (K + βI)⁻¹
    the errors of its rows are P_gg⁻¹ (P y)_g; one eigendecomposition serves the whole grid.
    """
    k, y = precise(kernel), precise(one_hot)
    values, vectors = torch.linalg.eigh(k)
    inside, own = vectors.T @ y, vectors.unflatten(0, (-1, views))
    errors = []
    for beta in betas:
        shrunk = 1 / (values.clamp(min=0) + beta)
        left = (vectors @ (shrunk[:, None] * inside)).unflatten(0, (-1, views))
        if views == 1:
            left = left / (own.square() @ shrunk)[..., None]
        else:
            left = torch.linalg.solve((own * shrunk) @ own.mT, left)
        errors.append(left[:, 0].square().sum(dim=1))
    return torch.stack(errors)
