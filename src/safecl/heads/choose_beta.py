"""The evidence from which β is chosen, and how much each block counts: errors of ridge regressions
on pictures that are held out, or left out in turn, for every β of a grid.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from safecl.heads.gram import CHUNK, Statistics
from safecl.heads.random_features import RandomFeatures
from safecl.heads.reading import Reading
from safecl.heads.settings import RidgeSettings, weightings
from safecl.heads.solve import smallest_beta, solve
from safecl.heads.tensors import check_finite, precise
from safecl.randomness import generator

MAX_EVIDENCE_PICTURES = 2048  # of a session, where those of all sessions choose β
MAX_WEIGHING_PICTURES = 1024  # where the weights of blocks are chosen with β
MAX_DUAL_PICTURES = 4096  # up to which β is chosen in the dual form: time n³, memory n²
MAX_LEFT_OUT_PICTURES = 2048  # in leave-one-out errors
# squared error per held-out picture that a tenth of β must save: any β tells one or two classes
# apart
PRICE = 0.002


def grid(settings: RidgeSettings, unit: float) -> list[float]:
    """The grid in absolute values; ``unit``: the mean squared norm of a projected feature."""
    scale = unit if settings.scale == "relative" else 1.0
    return [beta * scale for beta in settings.betas]


def grams(settings: RidgeSettings, size: int) -> int:
    """How many G of this ``size`` are needed at a time: the choice may take one of its own."""
    return 1 if _in_dual(_most(settings), size) else 2


def evidence(
    settings: RidgeSettings, random_features: RandomFeatures, features: Tensor, targets: Tensor
) -> Tensor | None:
    """What a session's features (N, v · d) and class indices (N,) say of every β, the less the
    better: (B,), or of every weighting and β (W · B,); None where there are too few.
    """
    apart = random_features.apart
    most = MAX_WEIGHING_PICTURES if apart else _most(settings)
    order = _shuffled(len(features), most, random_features.seed, "beta")
    order = order.to(features.device)
    if not len(order) // 5:
        return None
    # no gaps: an absent class adds nothing
    numbers = torch.unique(targets[order], return_inverse=True)[1]
    # By the first view alone: with two that are much alike, a few classes ask for less β than all
    # do.
    first = features[order, : random_features.width]
    if apart:
        kernels = in_own_units(random_features.kernels(first))
        fitted = 4 * len(order) // 5
        one_hot = F.one_hot(numbers)
        rows = [
            dual_errors(kernel, one_hot, fitted, betas)
            for kernel, betas in _weighed(settings, random_features.reading, kernels)
        ]
        errors = torch.stack(rows)
    else:
        errors = held_out_errors(settings, random_features, first, numbers)
    if settings.evidence == "all":
        held_out = len(order) - 4 * len(order) // 5
        saved = torch.from_numpy(np.log10(settings.betas)).to(errors)
        errors = errors - PRICE * held_out * saved
    return errors.flatten()


def in_own_units(kernels: Tensor) -> Tensor:
    """Kernels (p, n, n), each divided by its mean squared norm."""
    units = kernels.diagonal(dim1=1, dim2=2).mean(dim=1)
    check_finite(units)
    return kernels / torch.where(units > 0, units, 1)[:, None, None]


def _weighed(
    settings: RidgeSettings, reading: Reading, kernels: Tensor
) -> Iterator[tuple[Tensor, list[float]]]:
    """For every weighting, the sum of the kernels (p, n, n) so weighed, and the grid there."""
    for weights in weightings(reading):
        squares = torch.tensor(weights).to(kernels).square()
        total = float(squares.sum())
        yield torch.tensordot(squares, kernels, dims=1), [total * one for one in settings.betas]


def held_out_errors(
    settings: RidgeSettings,
    random_features: RandomFeatures,
    features: Tensor,
    targets: Tensor,
    dual: bool | None = None,
) -> Tensor:
    """Squared error of every β on the last fifth of the features (n, d), fitted on those before:
    (B,).

    ``dual``: by inner products of pictures, or by those of random features; None: as is quicker.
    """
    fitted = 4 * len(features) // 5
    if _in_dual(len(features), random_features.size) if dual is None else dual:
        kernel = random_features.kernel(features)
        betas = _own_grid(settings, kernel)
        return dual_errors(kernel, F.one_hot(targets), fitted, betas)
    statistics = Statistics(random_features.size, features.device)
    statistics.accumulate(random_features, features[:fitted], targets[:fitted])
    held_out = torch.split(features[fitted:], CHUNK)
    squares = [random_features(part).square().sum() for part in held_out]
    total = float(statistics.gram.diagonal().sum()) + float(torch.stack(squares).sum())
    betas = grid(settings, total / len(features) or 1.0)
    return primal_errors(statistics, random_features, features[fitted:], targets[fitted:], betas)


def leave_one_out(
    settings: RidgeSettings, random_features: RandomFeatures, features: Tensor, targets: Tensor
) -> Tensor:
    """Squared error on each of the features (N, v · d) of a head fitted on all the others, at the
    best β: (n,).
    """
    views = features.shape[1] // random_features.width
    most = MAX_LEFT_OUT_PICTURES // views
    order = _shuffled(len(features), most, random_features.seed, "leave-one-out")
    order = order.to(features.device)
    numbers = torch.unique(targets[order], return_inverse=True)[1].repeat_interleave(views)
    if random_features.apart:  # equally weighed: what is asked is which network, or which views
        kernel = in_own_units(random_features.kernels(features[order])).sum(dim=0)
    else:
        kernel = random_features.kernel(features[order])
    betas = _own_grid(settings, kernel, views)
    errors = leave_one_out_errors(kernel, F.one_hot(numbers), betas, views)
    return errors[int(errors.mean(dim=1).argmin())]


def plain_errors(features: Tensor, targets: Tensor) -> Tensor:
    """Squared error on each feature (N, d) of the best ridge regression on all others: (N,);
    infinite if not finite.
    """
    kernel = features.float() @ features.float().T
    if not kernel.isfinite().all():
        return torch.full_like(kernel[0], torch.inf)
    unit = float(kernel.diagonal().mean()) or 1.0
    betas = [beta * unit for beta in RidgeSettings().betas]
    errors = leave_one_out_errors(kernel, F.one_hot(targets), betas)
    return errors[int(errors.mean(dim=1).argmin())]


def dual_errors(kernel: Tensor, one_hot: Tensor, fitted: int, betas: Sequence[float]) -> Tensor:
    """For every β, squared error on the last rows of a kernel (n, n) with labels (n, C), fitted on
    the first: (B,).
    """
    k = precise(kernel)
    y = precise(one_hot)
    values, vectors = torch.linalg.eigh(k[:fitted, :fitted])
    across = k[fitted:, :fitted] @ vectors
    inside = vectors.T @ y[:fitted]
    errors = [
        (across @ (inside / (values.clamp(min=0) + beta)[:, None]) - y[fitted:]).square().sum()
        for beta in betas
    ]
    return torch.stack(errors)


def primal_errors(
    statistics: Statistics,
    project: Callable[[Tensor], Tensor],
    features: Tensor,
    targets: Tensor,
    betas: Sequence[float],
) -> Tensor:
    """Squared error on features (n, d) of a regression with these ``statistics``, for every β:
    (B,).
    """
    classes = max(statistics.sums.shape[1], int(targets.max()) + 1)
    raised = [max(beta, smallest_beta(statistics.gram)) for beta in betas]
    solved: dict[float, Tensor] = {}
    for beta in set(raised):
        weight = solve(statistics.gram, statistics.sums, beta)
        # a class of which no picture was fitted gets zeros
        weight = F.pad(weight, (0, classes - weight.shape[1]))
        errors = [
            (precise(project(part) @ weight) - precise(F.one_hot(labels, classes))).square().sum()
            for part, labels in zip(
                torch.split(features, CHUNK), torch.split(targets, CHUNK), strict=True
            )
        ]
        solved[beta] = torch.stack(errors).sum()
    return torch.stack([solved[beta] for beta in raised])


def leave_one_out_errors(
    kernel: Tensor, one_hot: Tensor, betas: Sequence[float], views: int = 1
) -> Tensor:
    """Squared error on each picture of a ridge regression fitted on all others, for every β: (B,
    n).

    A picture has ``views`` rows of the kernel (n · v, n · v), and is judged by the first of them.
    With P = (K + βI)⁻¹ the errors of its rows are P_gg⁻¹ (P y)_g; one eigendecomposition serves the
    whole grid.
    """
    k = precise(kernel)
    y = precise(one_hot)
    values, vectors = torch.linalg.eigh(k)
    inside = vectors.T @ y
    own = vectors.unflatten(0, (-1, views))
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


def _most(settings: RidgeSettings) -> int | None:
    """Pictures of a session from which β is chosen; None: all."""
    return MAX_EVIDENCE_PICTURES if settings.evidence == "all" else None


def _in_dual(pictures: int | None, size: int) -> bool:
    """Whether β is chosen in the dual form for so many pictures; None: any number."""
    return pictures is not None and pictures <= min(size, MAX_DUAL_PICTURES)


def _shuffled(count: int, most: int | None, seed: int, name: str) -> Tensor:
    """At most ``most`` of ``count`` positions in random order, which is the same for every session:
    (n,).
    """
    return torch.randperm(count, generator=generator(seed, name))[:most]


def _own_grid(settings: RidgeSettings, kernel: Tensor, views: int = 1) -> list[float]:
    """The grid relative to the features of ``kernel`` alone, so that the sessions may come in any
    order.

    Rows of a kernel count 1, those of a picture in G together.
    """
    check_finite(kernel.diagonal())
    unit = float(kernel.diagonal().mean()) or 1.0
    return [views * beta for beta in grid(settings, unit)]
