"""What a model has learned, as tensors: to make a method of it, to add a session to it, to take the last one back.

The Gram matrix of a ridge head is large, and the features it was made from are few as long as a model is young. So a
state holds a base matrix and the features that were added to it since (``chain``), until these are more than
``REPLAYED`` pictures; then the matrix becomes the new base. The same additions in the same order give the same bits.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.classifier.settings import Memory, ModelSettings
from safecl.heads.packing import rounded
from safecl.heads.ridge import RidgeHead
from safecl.heads.statistics import Statistics
from safecl.methods.catalog import make_method
from safecl.methods.method import Method
from safecl.streams.pictures.images import Label

MEMORY = "memory."  # where the state of a method has what it keeps of pictures in order to learn
REPLAYED = 512  # pictures whose features are kept in place of a Gram matrix


@dataclass(frozen=True)
class Added:
    """One addition to a ridge head: features (n, d), float32 or int8 with a scale (n, 1), and targets (n,)."""

    head: str
    features: Tensor
    targets: Tensor
    scale: Tensor | None = None

    @property
    def values(self) -> Tensor:
        """What the head was given: (n, d)."""
        return self.features if self.scale is None else self.features.float() * self.scale

    def without(self, index: int) -> "Added":
        """Without the pictures of a class; those after it move up by one."""
        rows = self.targets != index
        targets = self.targets[rows]
        scale = None if self.scale is None else self.scale[rows]
        return Added(self.head, self.features[rows], targets - (targets > index).long(), scale)


@dataclass(frozen=True)
class Undo:
    """How to take one session back: values before it, names it brought, and what the header said."""

    session: str
    tensors: dict[str, Tensor]
    shapes: dict[str, list[int]]  # of tensors that the session only appended to
    absent: list[str]
    grams: dict[str, Tensor]  # Gram matrices before it, where its features are not kept
    header: dict[str, Any]


@dataclass(frozen=True)
class State:
    """Tensors are shared between states and never modified in place."""

    tensors: dict[str, Tensor] = field(default_factory=dict)  # of the method, but for its Gram matrices
    base: dict[str, Tensor] = field(default_factory=dict)  # Gram matrices by the name of their statistics
    chain: tuple[str, ...] = ()  # the sessions that were added to ``base`` since
    records: dict[str, list[Added]] = field(default_factory=dict)  # by session
    undo: tuple[Undo, ...] = ()  # the oldest first
    kept: dict[str, Tensor] = field(default_factory=dict)  # features of some pictures, to calibrate with
    seen: dict[str, Tensor] = field(default_factory=dict)  # hashes and classes of all pictures that were learned


@contextmanager
def recording(method: Method, memory: Memory) -> Iterator[list[Added]]:
    """What is added to the ridge heads meanwhile; with ``features`` they are rounded to int8 before they are added."""
    found: list[Added] = []
    made: dict[int, tuple[Tensor, Added]] = {}  # the same features may go into two heads

    def take(head: str, features: Tensor, targets: Tensor) -> Tensor:
        if memory == "statistics":
            found.append(Added(head, features.detach(), targets))
            return features
        if id(features) not in made:
            values, scale = rounded(features)
            made[id(features)] = features, Added("", values, targets, scale)
        added = replace(made[id(features)][1], head=head, targets=targets)
        found.append(added)
        return added.values

    heads = ridge_heads(method)
    for name, head in heads.items():
        head.before_add = lambda features, targets, name=name: take(name, features, targets)
    try:
        yield found
    finally:
        for head in heads.values():
            head.before_add = None


def ridge_heads(method: Method) -> dict[str, RidgeHead]:
    return {name: module for name, module in method.named_modules() if isinstance(module, RidgeHead)}


def statistics(method: Method) -> dict[str, Statistics]:
    """Every statistics that is part of the state once, by its first name."""
    found = method.named_modules()
    return {name: module for name, module in found if isinstance(module, Statistics) and module.kept}


def names(method: Method) -> dict[str, int]:
    """Every name that such statistics have, shared ones under each, and the number of random features."""
    found = method.named_modules(remove_duplicate=False)
    return {name: module.size for name, module in found if isinstance(module, Statistics) and module.kept}


def learn_only(all_names: Mapping[str, int], tensors: Iterable[str]) -> set[str]:
    """The tensors without which a method still predicts: Gram matrices, class sums, and what it keeps of pictures."""
    memory = {name for name in tensors if name.startswith(MEMORY)}
    return memory | {f"{name}.{part}" for name in all_names for part in ("gram", "sums")}


def build(
    settings: ModelSettings,
    backbone: Backbone,
    state: State,
    classes: Sequence[Label],
    *,
    learning: bool,
    sizes: Mapping[str, int] | None = None,
) -> Method:
    """The method with this state. ``learning``: with its Gram matrices, which predictions do not need.

    ``sizes``: the random features of statistics by name, where the state lacks their tensors.
    """
    method = make_method(settings.method, backbone, settings.seed)
    if not state.tensors:
        return method
    tensors = dict(state.tensors)
    for name, size in (sizes or names(method)).items():
        tensors[f"{name}.gram"] = torch.zeros(0, 0)
        tensors.setdefault(f"{name}.sums", torch.zeros(size, 0))
    for name, none in method.state_dict().items():
        if name.startswith(MEMORY):
            tensors.setdefault(name, none)
    method.restore(tensors, list(classes))
    if learning:
        for name, gram in grams(method, state).items():
            statistics(method)[name].gram = gram
    return method


def grams(method: Method, state: State) -> dict[str, Tensor]:
    """The Gram matrices of a state, made of their base and the chain; new tensors."""
    found = {}
    for name, own in statistics(method).items():
        base = state.base.get(name)
        found[name] = torch.zeros(0, 0, device=own.sums.device) if base is None else base.to(own.sums.device).clone()
    for session in state.chain:
        found = changed_by(method, found, state.records[session])
    return found


def changed_by(method: Method, found: Mapping[str, Tensor], added: Sequence[Added]) -> dict[str, Tensor]:
    """Gram matrices with what ``added`` adds; those given may be modified."""
    found, heads, unique = dict(found), ridge_heads(method), statistics(method)
    for one in added:
        head = heads[one.head]
        name = next(name for name, own in unique.items() if own is head.statistics)
        sums = Statistics(head.size, head.projection.device)
        sums.gram = found[name]
        head.accumulate(sums, one.values.to(head.projection), one.targets.to(head.projection.device))
        found[name] = sums.gram
    return found


def advance(
    before: State, method: Method, session: str, added: list[Added], keep: int, header: dict[str, Any]
) -> State:
    """The state after a session that ``method`` has just learned. ``header``: what rolling back must say again."""
    tensors = {name: tensor.detach() for name, tensor in method.state_dict().items()}
    live = {name: own.gram for name, own in statistics(method).items()}
    for name in names(method):
        del tensors[f"{name}.gram"]
    records = {**before.records, session: added}
    chain = (*before.chain, session)
    whole = _covers(before, method, added)
    base = before.base
    if not whole or sum(len(records[s][0].targets) for s in chain if records[s]) > REPLAYED:
        base, chain = live, ()
    undo = before.undo
    if before.tensors:
        shapes, changed = _difference(before.tensors, tensors)
        small = whole and sum(one.features.nbytes for one in added) <= sum(gram.nbytes // 2 for gram in live.values())
        explicit = {} if small or session in chain else grams(method, before)
        absent = [name for name in tensors if name not in before.tensors]
        undo = (*undo, Undo(session, changed, shapes, absent, explicit, header))
    state = replace(before, tensors=tensors, base=base, chain=chain, records=records, undo=undo)
    return trimmed(state, keep, every=any(one.scale is not None for one in added))


def trimmed(state: State, keep: int, every: bool = False) -> State:
    """Without what no session to roll back and no Gram matrix needs; ``every``: all records stay."""
    undo = state.undo[len(state.undo) - min(keep, len(state.undo)) :]
    needed = {*state.chain, *(one.session for one in undo if not one.grams)}
    records = {name: added for name, added in state.records.items() if every or name in needed}
    return replace(state, undo=undo, records=records)


def roll_back(state: State, make: Callable[[], Method]) -> tuple[State, dict[str, Any]]:
    """The state before the last session, and what its header said. ``make``: a method like this state's."""
    *undo, last = state.undo
    tensors = {name: tensor for name, tensor in state.tensors.items() if name not in last.absent}
    for name, shape in last.shapes.items():
        tensors[name] = tensors[name][tuple(slice(0, n) for n in shape)].clone()
    tensors |= last.tensors
    base, chain = state.base, state.chain
    if chain and chain[-1] == last.session:
        chain = chain[:-1]
    elif last.grams:
        base, chain = last.grams, ()
    else:  # to rounding; predictions need no Gram matrix, and their weights are restored as they were
        method = make()
        none = {name: torch.zeros(0, 0) for name in statistics(method)}
        gone, now = changed_by(method, none, state.records[last.session]), grams(method, state)
        base = {
            name: (now[name].double() - gone[name].double()).float() if len(gone[name]) else now[name] for name in now
        }
        chain = ()
    records = {name: added for name, added in state.records.items() if name != last.session}
    count = {key: last.header[key] for key in ("kept", "seen")}
    kept = {name: rows[: count["kept"]] for name, rows in state.kept.items()}
    seen = {name: rows[: count["seen"]] for name, rows in state.seen.items()}
    return State(tensors, base, chain, records, tuple(undo), kept, seen), last.header


def _covers(before: State, method: Method, added: Sequence[Added]) -> bool:
    """Whether the additions are all that has happened to the statistics in this session."""
    heads = ridge_heads(method)
    for name, own in statistics(method).items():
        old = before.tensors.get(f"{name}.count")
        count = int(own.count) - (0 if old is None else int(old))
        if count != sum(len(one.targets) for one in added if heads[one.head].statistics is own):
            return False
    return True


def _difference(old: Mapping[str, Tensor], new: Mapping[str, Tensor]) -> tuple[dict[str, list[int]], dict[str, Tensor]]:
    """(shapes of old tensors that are the first block of the new ones, other old tensors that are not in ``new``)."""
    shapes: dict[str, list[int]] = {}
    changed: dict[str, Tensor] = {}
    for name, tensor in old.items():
        now = new.get(name)
        fits = (
            now is not None
            and now.ndim == tensor.ndim
            and all(a <= b for a, b in zip(tensor.shape, now.shape, strict=True))
        )
        if fits and now is not None:
            block = now[tuple(slice(0, n) for n in tensor.shape)]
            if torch.equal(block, tensor.to(now)):
                if now.shape != tensor.shape:
                    shapes[name] = list(tensor.shape)
                continue
        changed[name] = tensor
    return shapes, changed
