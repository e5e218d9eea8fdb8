"""Logits as if a picture had not been learned: leave-one-out in closed form."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from safecl.heads.cosine import CosineHead
from safecl.heads.ridge import RidgeHead


@contextmanager
def leaving_out(module: nn.Module, targets: Tensor, groups: Tensor) -> Iterator[None]:
    """Meanwhile the heads in ``module`` answer to learned pictures as if these had been left out, a group at a time.

    ``targets`` (N,): class indices; ``groups`` (N,): numbers of groups. Exact for ridge heads, given β and the
    features. Cosine heads whose weights are centroids leave out each picture alone. Other heads answer as usual.
    """
    heads = [head for head in module.modules() if isinstance(head, RidgeHead | CosineHead)]
    try:
        for head in heads:
            head.left_out = targets, groups
        yield
    finally:
        for head in heads:
            head.left_out = None


def one_of_each(targets: Tensor) -> Tensor:
    """Groups (N,) with at most one picture of every class.

    Leaving out a picture alone would leave its class with fewer pictures than the others, and so make it less likely.
    """
    order, counts = targets.argsort(stable=True), targets.bincount()
    firsts = counts.cumsum(dim=0) - counts
    rank = torch.empty_like(targets)
    rank[order] = torch.arange(len(targets), device=targets.device) - firsts[targets[order]]
    return rank
