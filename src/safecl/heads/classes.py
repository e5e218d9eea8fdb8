"""Tensors with one row (or column) per class: a class is removed, or the change of another such tensor is added."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn


def take_shapes(module: nn.Module, state: Mapping[str, Tensor], prefix: str, names: Iterable[str]) -> None:
    """Give these tensors of ``module`` the shapes that ``state`` has: how many classes there are is part of a state."""
    for name in names:
        own = getattr(module, name)
        zeros = own.data.new_zeros(state[prefix + name].shape)
        setattr(module, name, nn.Parameter(zeros, own.requires_grad) if isinstance(own, nn.Parameter) else zeros)


def without(rows: Tensor, index: int, dim: int = 0) -> Tensor:
    """``rows`` without the class at ``index``; a class that has no row there changes nothing."""
    kept = [i for i in range(rows.shape[dim]) if i != index]
    return (
        rows if len(kept) == rows.shape[dim] else rows.index_select(dim, torch.tensor(kept, device=rows.device).long())
    )


def added(own: Tensor, now: Tensor, before: Tensor, index: Tensor, dim: int = 0) -> Tensor:
    """``own`` plus what ``now`` has more than ``before``; class i of these is class ``index[i]`` of ``own``, −1: none.

    ``before`` has the first of the classes of ``now``. ``own`` grows where ``index`` points behind its end.
    """
    change = now.clone()
    change.narrow(dim, 0, before.shape[dim]).sub_(before)
    rows = (index[: now.shape[dim]] >= 0).nonzero()[:, 0]
    where = index[rows].to(own.device)
    shape = list(own.shape)
    shape[dim] = max(shape[dim], int(where.max()) + 1 if len(where) else 0)
    grown = own.new_zeros(shape)
    grown.narrow(dim, 0, own.shape[dim]).copy_(own)
    return grown.index_add_(dim, where, change.index_select(dim, rows.to(change.device)).to(own))
