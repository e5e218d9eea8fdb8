"""How known does a picture look? Scores that ``trust.py`` compares at the same rate of false
alarms.

Each gives a number per picture, larger where it looks more like what was learned. Those that
compare features of the slow learner with features that the model keeps judge a kept picture by the
others: by those of other groups.
"""

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

NEIGHBOURS = 5


def by_logits(logits: Mapping[str, Tensor], main: str, temperature: float) -> dict[str, Tensor]:
    """From logits (n, C) by output; ``main``: that of the answer."""
    z = logits[main]
    answer = F.one_hot(z.argmax(dim=1), z.shape[1])
    found = {
        "largest logit": z.amax(dim=1),
        "energy": temperature * (z / temperature).logsumexp(dim=1),
        "probability": torch.softmax(z / temperature, dim=1).amax(dim=1),
        "margin": (z.topk(2).values * torch.tensor([1.0, -1.0])).sum(dim=1),
        "one-hot": -(z / 10 - answer).norm(dim=1),
    }
    if {"slow", "fast"} <= logits.keys():
        slow, fast = (
            torch.log_softmax(logits[name] / temperature, dim=1) for name in ("slow", "fast")
        )
        middle = torch.logsumexp(torch.stack([slow, fast]), dim=0) - torch.log(torch.tensor(2.0))
        found["disagreement"] = (
            -sum((one.exp() * (one - middle)).sum(dim=1) for one in (slow, fast)) / 2
        )
        found["smaller of both"] = torch.minimum(
            logits["slow"].amax(dim=1), logits["fast"].amax(dim=1)
        )
    return found


def mahalanobis(x: Tensor, kept: Tensor, targets: Tensor, relative: bool = True) -> Tensor:
    """−min_c (x − μ_c)ᵀ Σ⁻¹ (x − μ_c), relative to that of one Gaussian of all: (n,)."""
    classes, index = torch.unique(targets, return_inverse=True)
    means = (
        torch.zeros(len(classes), kept.shape[1]).index_add(0, index, kept)
        / index.bincount()[:, None]
    )
    nearest = _distances(x, means, kept - means[index], len(kept) - len(classes)).amin(dim=1)
    if not relative:
        return -nearest
    middle = kept.mean(dim=0, keepdim=True)
    return _distances(x, middle, kept - middle, len(kept) - 1)[:, 0] - nearest


def _distances(x: Tensor, means: Tensor, centred: Tensor, freedom: int) -> Tensor:
    """Squared Mahalanobis distances (n, C), with a covariance drawn to a multiple of the identity
    (OAS).
    """
    n = max(freedom, 1)
    d = centred.shape[1]
    covariance = centred.T @ centred / n
    unit = covariance.trace() / d
    square = covariance.square().sum()
    rho = ((1 - 2 / d) * square + (unit * d) ** 2) / (
        (n + 1 - 2 / d) * (square - d * unit**2)
    ).clamp(min=1e-12)
    rho = float(rho.clamp(0, 1))
    factor = torch.linalg.cholesky((1 - rho) * covariance + (rho + 1e-6) * unit * torch.eye(d))
    a, b = (torch.linalg.solve_triangular(factor, rows.T, upper=False).T for rows in (x, means))
    return torch.cdist(a, b).square()


def neighbours(x: Tensor, kept: Tensor, targets: Tensor) -> Tensor:
    """Cosine with the k-th nearest kept feature: (n,)."""
    similar = F.normalize(x, dim=1) @ F.normalize(kept, dim=1).T
    return similar.topk(min(NEIGHBOURS, len(kept)), dim=1).values[:, -1]


def nearest_mean(x: Tensor, kept: Tensor, targets: Tensor) -> Tensor:
    """Cosine with the nearest class mean: (n,)."""
    classes, index = torch.unique(targets, return_inverse=True)
    means = torch.zeros(len(classes), kept.shape[1]).index_add(0, index, F.normalize(kept, dim=1))
    return (F.normalize(x, dim=1) @ F.normalize(means, dim=1).T).amax(dim=1)


BY_FEATURES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "relative Mahalanobis": mahalanobis,
    "Mahalanobis": lambda x, kept, targets: mahalanobis(x, kept, targets, relative=False),
    "nearest neighbours": neighbours,
    "nearest mean": nearest_mean,
}


def left_out(
    score: Callable[[Tensor, Tensor, Tensor], Tensor], kept: Tensor, targets: Tensor, groups: Tensor
) -> Tensor:
    """The score of each kept feature by those of other groups: (n,)."""
    found = torch.zeros(len(kept))
    for group in torch.unique(groups).tolist():
        here = groups == group
        found[here] = score(kept[here], kept[~here], targets[~here])
    return found


def auroc(known: Tensor, unknown: Tensor) -> float:
    """How often a known picture has a higher score than an unknown one."""
    order = torch.cat([known, unknown]).argsort().argsort().double() + 1
    count = len(known) * (len(known) + 1) / 2
    return float((order[: len(known)].sum() - count) / (len(known) * len(unknown)))
