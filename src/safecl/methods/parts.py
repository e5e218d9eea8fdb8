"""What a method is made of, and what follows from that: its sums are corrected, a class is dropped,
two models become one.

A module says by its class what becomes of it (``heads/protocol.py``). What cannot be seen of it a
method says: whose features it has learned, and which networks every session goes on tuning.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from safecl.heads.cosine import CosineHead
from safecl.heads.gaussians import ClassMoments
from safecl.heads.protocol import Kind, Merge, editable_parts, refusal
from safecl.heads.ridge import RidgeHead
from safecl.methods.ensemble import side_by_side


@dataclass(frozen=True)
class Part:
    """A module of a method that has state of its own, or the method itself, of no name.

    ``reads``: the networks whose features it has learned, or the ridge head that gave it its own.
    ``together``: how the features of several networks become one.
    """

    name: str
    module: Any  # an Editable
    reads: tuple[str, ...] = ()
    kind: Kind = "derived"
    merge: Merge = "keep"
    together: Callable[..., Tensor] = side_by_side

    @property
    def corrected(self) -> bool:
        """Whether it is told of each picture that a label is corrected of."""
        return self.kind in ("sum", "trained") and bool(self.reads)


Parts = tuple[Part, ...]


class Parted(Protocol):
    """What is asked of a ``Method`` here."""

    sessions: int

    def parts(self) -> Parts:
        """What it is made of."""

    @property
    def networks(self) -> Mapping[str, Any]:
        """Those through which pictures go."""

    def get_submodule(self, target: str) -> Any:
        """The module of this name."""


def modules_of(method: nn.Module) -> Parts:
    """The parts of a method as far as its modules say."""
    return tuple(
        Part(name, module, kind=module.kind, merge=module.merges)
        for name, module in editable_parts(method).items()
    )


def learned_from(
    parts: Parts,
    reads: Mapping[str, tuple[str, ...]],
    together: Callable[..., Tensor] | None = None,
) -> Parts:
    """The same parts, of which those in ``reads`` have learned from these."""
    return tuple(
        replace(part, reads=reads[part.name], together=together or part.together)
        if part.name in reads
        else part
        for part in parts
    )


def merging(parts: Parts, networks: Iterable[object], merge: Merge) -> Parts:
    """The same parts, of which these ``networks`` merge so."""
    ids = {id(network) for network in networks}
    return tuple(replace(part, merge=merge) if id(part.module) in ids else part for part in parts)


def reads_of(method: Parted) -> dict[str, tuple[str, ...]]:
    """By part that a correction is told to, whose features it has learned; see ``Part.reads``."""
    return {part.name: part.reads for part in method.parts() if part.corrected}


def heads_of(method: Parted) -> dict[str, str]:
    """By network, the ridge head to which a session adds its features alone."""
    return {
        part.reads[0]: part.name
        for part in method.parts()
        if isinstance(part.module, RidgeHead) and len(part.reads) == 1
    }


def moving_of(method: Parted) -> set[str]:
    """The networks that every session goes on tuning."""
    averaged = {id(part.module) for part in method.parts() if part.merge == "average"}
    networks = method.networks
    return {name for name in networks if id(plain(networks[name])) in averaged}


def plain(network: Any) -> Any:
    """A network itself, whatever is read of it."""
    return getattr(network, "network", network)


def tuned(method: Parted) -> bool:
    """Whether anything was trained."""
    return any(part.kind == "trained" for part in method.parts())


def corrected(method: Parted) -> Parts:
    """The parts of a method in which labels can be corrected, because all that it has of them are
    sums; others are refused.
    """
    parts = method.parts()
    for part in parts:
        module = part.module
        sums = isinstance(module, CosineHead | ClassMoments) and module.classes > 0
        if isinstance(module, RidgeHead) and module.statistics.kept:
            sums = module.statistics.sums.shape[1] > 0
        if sums and not part.corrected:
            raise refusal(module)
    for part in parts:
        if not part.name:
            raise refusal(part.module)
    return parts


@torch.no_grad()
def correct(method: Parted, features: Mapping[str, Tensor], old: Tensor, new: Tensor) -> None:
    """Pictures that were learned as classes ``old`` (n,) are ``new``, −1: not learned; ``features``
    by part. ``Method.refresh`` makes what follows.
    """
    for part in corrected(method):
        part.module.correct(features.get(part.name), old, new)


@torch.no_grad()
def join(method: Parted, one: int, other: int) -> None:
    """The pictures of class ``other`` become those of class ``one``."""
    for part in corrected(method):
        part.module.join(one, other)


def drop_class(method: Parted, index: int) -> None:
    """Remove the class at ``index`` from every part; those after it move up by one."""
    for part in method.parts():
        part.module.drop_class(index)


@torch.no_grad()
def merge(method: Parted, now: Parted, before: Parted, index: Tensor) -> None:
    """Take over what ``now`` has learned since it was ``before``; its class i is class ``index[i]``
    in ``method``.
    """
    for part in method.parts():
        name = part.name
        part.module.merge(now.get_submodule(name), before.get_submodule(name), index)
    method.sessions += now.sessions - before.sessions
