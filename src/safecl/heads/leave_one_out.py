"""Logits as if a picture had not been learned: leave-one-out in closed form, and the pictures to ask."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from safecl.heads.beta_selection import leave_one_out_errors
from safecl.heads.cosine import CosineHead
from safecl.heads.nearest import NearestMean
from safecl.heads.ridge import RidgeHead
from safecl.heads.settings import RidgeSettings

MIN_JUDGING_PICTURES = 10  # below which nothing is decided
MAX_JUDGING_PICTURES = 256  # for pilots and the slow learner; or two per class if there are that many classes
# Share of a guess's error by which tuning must raise its own to be undone, and of a pilot's error by which it must be
# less without any of its tuning.
MIN_ERROR_CHANGE = 0.05


@contextmanager
def leaving_out(
    module: nn.Module, targets: Tensor, groups: Tensor, included: Mapping[str, Tensor] | None = None
) -> Iterator[None]:
    """Meanwhile the heads in ``module`` answer to learned pictures as if these had been left out, a group at a time.

    ``targets`` (N,): class indices; ``groups`` (N,): numbers of groups; ``included``: by the name of a ridge head, the
    rows (N, M) that its statistics have of these pictures, where these are not the projected features that it is asked
    about. Exact for ridge heads, given β and the rows. Cosine heads whose weights are centroids leave out the
    pictures of a group from their own class alone. A ``NearestMean`` leaves out each picture, and takes others of its
    class in the group for the same one. Other heads answer as usual.
    """
    kinds = RidgeHead | CosineHead | NearestMean
    heads = {name: head for name, head in module.named_modules() if isinstance(head, kinds)}
    try:
        for name, head in heads.items():
            head.left_out = targets, groups, (included or {}).get(name)
        yield
    finally:
        for head in heads.values():
            head.left_out = None


def one_of_each(targets: Tensor) -> Tensor:
    """Groups (N,) with at most one picture of every class, so that leaving one out favours no class."""
    order, counts = targets.argsort(stable=True), targets.bincount()
    firsts = counts.cumsum(dim=0) - counts
    rank = torch.empty_like(targets)
    rank[order] = torch.arange(len(targets), device=targets.device) - firsts[targets[order]]
    return rank


def evenly(targets: Tensor, most: int) -> Tensor:
    """Positions (n,) of about ``most`` pictures, the first two or more of every class (N,) that has two."""
    counts = targets.bincount()
    each = max(2, most // max(1, int((counts > 1).sum())))
    return ((counts[targets] > 1) & (one_of_each(targets) < each)).nonzero()[:, 0]


def judges(targets: Tensor, most: int) -> Tensor:
    """As ``evenly``, but none where fewer than two classes or ``MIN_JUDGING_PICTURES`` pictures are left."""
    chosen = evenly(targets, most)
    return chosen if len(chosen) >= MIN_JUDGING_PICTURES and len(torch.unique(targets[chosen])) > 1 else chosen[:0]


def plain_errors(features: Tensor, targets: Tensor) -> Tensor:
    """Squared error on each feature (N, d) of the best ridge regression on all others: (N,); infinite if not finite."""
    kernel = features.float() @ features.float().T
    if not kernel.isfinite().all():
        return torch.full_like(kernel[0], torch.inf)
    unit = float(kernel.diagonal().mean()) or 1.0
    errors = leave_one_out_errors(kernel, F.one_hot(targets), [beta * unit for beta in RidgeSettings().betas])
    return errors[int(errors.mean(dim=1).argmin())]
