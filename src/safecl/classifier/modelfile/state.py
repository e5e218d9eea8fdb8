"""What a model has learned, as tensors: to make a method of it, to add a session to it, to take the
last one back.

A Gram matrix is large, and the features that were added to it in a session are few. So a state
holds the matrices as they were before the sessions that can be rolled back (``base``), and the
features of the sessions since (``chain``). The same additions in the same order give the same bits,
so a session is taken back by omitting its features.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

from safecl.classifier.modelfile.rows import Table, below, restored
from safecl.classifier.modelfile.schema import Thumbnail
from safecl.classifier.settings import Memory, ModelSettings
from safecl.heads.gram import Statistics
from safecl.heads.protocol import editable_parts
from safecl.heads.ridge import RidgeHead
from safecl.heads.tensors import rounded
from safecl.methods.method import Method

# pictures of sessions that cannot be rolled back whose features may stand in for a Gram matrix
REPLAYED = 512


@dataclass(frozen=True)
class Added:
    """One addition to a ridge head: features (n, d), float32 or int8 with a scale (n, 1), and
    targets (n,).

    Targets of −1: pictures that are taken out of the Gram matrix again.
    """

    head: str
    features: Tensor
    targets: Tensor
    scale: Tensor | None = None

    @classmethod
    def of_memory(cls, memory: Memory, head: str, features: Tensor, targets: Tensor) -> "Added":
        """Of features (n, d) as they are, or rounded to int8."""
        values, scale = (features.detach(), None) if memory == "statistics" else rounded(features)
        return cls(head, values, targets, scale)

    @property
    def values(self) -> Tensor:
        """What the head was given: (n, d)."""
        return self.features if self.scale is None else self.features.float() * self.scale

    @property
    def taken(self) -> bool:
        """Whether its pictures are taken out."""
        return len(self.targets) > 0 and bool((self.targets < 0).all())

    def only(self, rows: Tensor) -> "Added":
        """The pictures at ``rows``."""
        return self.of({name: values[rows] for name, values in self.table.items()})

    @property
    def table(self) -> Table:
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def of(self, table: Table) -> "Added":
        """With other rows."""
        return replace(self, **table)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Undo:
    """The state before a session or a correction: values that it changed, names that it brought,
    what the header said.

    ``whole``: it can be rolled back; otherwise there is only what a merge needs. ``rows``: what a
    correction has changed in ``kept``, ``seen`` and the records, by "kept/", "seen/" and
    "records/SESSION/i/".
    """

    session: str
    tensors: dict[str, Tensor]
    shapes: dict[str, list[int]]  # of tensors that the session only appended to
    absent: list[str]
    header: dict[str, Any]
    whole: bool = True
    rows: dict[str, Tensor] = field(default_factory=dict)

    def before(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors before the session, from those after it."""
        found = {name: tensor for name, tensor in tensors.items() if name not in self.absent}
        for name, shape in self.shapes.items():
            found[name] = found[name][_block(shape)].clone()
        return found | self.tensors

    def rows_before(self, kept: Table, seen: Table) -> tuple[Table, Table]:
        """``kept`` and ``seen`` before the session, from those after it."""
        tables = (("kept", kept, "targets"), ("seen", seen, "classes"))
        before = [
            restored(table, column, below(self.rows, f"{key}/")) for key, table, column in tables
        ]
        kept, seen = (
            {n: rows[: self.header[key]] for n, rows in table.items()}
            for (key, *_), table in zip(tables, before, strict=True)
        )
        return kept, seen


@dataclass(frozen=True)
class State:
    """Tensors are shared between states and never modified in place."""

    # of the method, but for its Gram matrices
    tensors: dict[str, Tensor] = field(default_factory=dict)
    # Gram matrices by the name of their statistics
    base: dict[str, Tensor] = field(default_factory=dict)
    chain: tuple[str, ...] = ()  # the sessions that were added to ``base`` since
    records: dict[str, list[Added]] = field(default_factory=dict)  # by session
    undo: tuple[Undo, ...] = ()  # the oldest first
    # features of some pictures, to calibrate with
    kept: dict[str, Tensor] = field(default_factory=dict)
    # hashes and classes of all pictures that were learned
    seen: dict[str, Tensor] = field(default_factory=dict)
    thumbnails: tuple[Thumbnail, ...] = ()

    def __post_init__(self) -> None:
        """Keep thumbnails of pictures in ``seen`` alone: of each class the one of the largest
        margin and the least.
        """
        if not self.thumbnails:
            return
        own: dict[int, list[Thumbnail]] = {}
        classes = dict(
            zip(self.seen["hashes"].tolist(), self.seen["classes"].tolist(), strict=True)
        )
        for one in sorted(
            {one.picture: one for one in self.thumbnails}.values(), key=lambda one: -one.margin
        ):
            if (c := classes.get(one.picture)) is not None:
                own.setdefault(c, []).append(one.model_copy(update={"place": c}))
        found = (one for _, each in sorted(own.items()) for one in each[:1] + each[1:][-1:])
        object.__setattr__(self, "thumbnails", tuple(found))

    def before(self, sessions: Sequence[str]) -> dict[str, Tensor] | None:
        """The tensors that a merge needs as they were before these last sessions; None where they
        are not known.
        """
        undo = self.undo[len(self.undo) - len(sessions) :]
        if [one.session for one in undo] != list(sessions):
            return None
        found = self.tensors
        for one in reversed(undo):
            found = one.before(found)
        return found


class Recording:
    """What is added to the ridge heads in a session: ``added``, and by head the ``given`` features
    (N, d). With ``features`` in memory they are rounded to int8 before they are added.
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.added: list[Added] = []
        self.given: dict[str, Tensor] = {}
        # by identity: the same features may go into two heads
        self._made: dict[int, tuple[Tensor, Added]] = {}

    def __call__(self, head: str, features: Tensor, targets: Tensor) -> Tensor:
        """As ``Fit.record``."""
        if id(features) not in self._made:
            added = Added.of_memory(self.memory, "", features, targets)
            self._made[id(features)] = features, added
        self.added.append(replace(self._made[id(features)][1], head=head, targets=targets))
        rounded = self.memory != "statistics"
        self.given[head] = self.added[-1].values if rounded else features
        return self.given[head]


def ridge_heads(method: Method) -> dict[str, RidgeHead]:
    return {
        name: module for name, module in method.named_modules() if isinstance(module, RidgeHead)
    }


def statistics(method: Method) -> dict[str, Statistics]:
    """The statistics that are part of the state."""
    return {
        name: own
        for name, own in method.named_modules()
        if isinstance(own, Statistics) and own.kept
    }


def sizes_of(method: Method) -> dict[str, int]:
    """The number of random features of the statistics."""
    return {name: own.size for name, own in statistics(method).items()}


def grams_of(method: Method) -> dict[str, Tensor]:
    return {name: own.gram for name, own in statistics(method).items()}


def tensors_of(method: Method) -> dict[str, Tensor]:
    """The state of a method without its Gram matrices."""
    grams = {f"{name}.gram" for name in statistics(method)}
    return {
        name: tensor.detach() for name, tensor in method.state_dict().items() if name not in grams
    }


def set_grams(method: Method, state: State) -> None:
    """Give a method the Gram matrices of a state."""
    heads = ridge_heads(method)
    for one in (one for several in state.records.values() for one in several):
        if one.features.ndim != 2 or one.features.shape[1] % heads[one.head].width:
            raise ValueError(f"features that {one.head} was given are of another width")
    added = [one for session in state.chain for one in state.records[session]]
    for name, gram in with_added(method, state.base, added).items():
        statistics(method)[name].gram = gram


def add_to_grams(method: Method, added: Sequence[Added]) -> None:
    """Let the Gram matrices of a method that nobody else has grow in place."""
    for name, gram in with_added(method, grams_of(method), added, copy=False).items():
        statistics(method)[name].gram = gram


def with_added(
    method: Method, base: Mapping[str, Tensor], added: Sequence[Added], copy: bool = True
) -> dict[str, Tensor]:
    """New Gram matrices: those of ``base`` and what is added to them."""
    heads = ridge_heads(method)
    sums = {}
    for name, own in statistics(method).items():
        sums[id(own)] = Statistics(own.size, own.sums.device)
        if name in base:
            sums[id(own)].gram = base[name].to(own.sums.device, copy=copy)
    for one in added:
        head = heads[one.head]
        if not head.statistics.kept:  # the features have shaped the choice of β alone
            continue
        own = sums[id(head.statistics)]
        features = one.values.to(head.project.projection)
        # classes are of no matter here
        none = torch.zeros(len(features), dtype=torch.int64, device=features.device)
        if not one.taken:
            own.accumulate(head.project, features, none)
            continue
        gone = Statistics(own.size, features.device)
        gone.accumulate(head.project, features, none)
        own.subtract(gone)
    return {name: sums[id(own)].gram for name, own in statistics(method).items()}


def advance(
    before: State,
    method: Method,
    session: str,
    added: list[Added],
    settings: ModelSettings,
    header: dict[str, Any],
    rows: dict[str, Tensor] | None = None,
) -> State:
    """The state after a session that ``method`` has just learned. ``header``: what rolling back
    must say again.

    ``rows``: of a correction, whose records and tables ``before`` has already; see ``Undo``.
    """
    tensors = tensors_of(method)
    undo = before.undo
    if before.tensors:
        shapes, changed = _difference(before.tensors, tensors)
        absent = [name for name in tensors if name not in before.tensors]
        undo = (*undo, Undo(session, changed, shapes, absent, header, rows=rows or {}))
    state = replace(before, tensors=tensors, undo=undo)
    if added or rows is None:
        state = replace(
            state, chain=(*before.chain, session), records={**before.records, session: added}
        )
    return settled(state, method, settings)


def settled(state: State, method: Method, settings: ModelSettings) -> State:
    """Without what is no longer needed. Sessions that cannot be rolled back become part of ``base``
    if large.
    """
    features = settings.memory == "features"
    older = max(len(state.undo) - settings.keep, 0)
    undo = state.undo[older:]
    if features:  # for merging it must know what was there before every session
        undo = (*(_for_merging(one, method) for one in state.undo[:older]), *undo)
    back = {one.session for one in undo if one.whole}
    for one in undo:  # pictures that may come back come back where they were
        back |= {
            name.split("/")[1]
            for name, rows in one.rows.items()
            if name.endswith("/gone/features") and len(rows)
        }
    done = list(takewhile(lambda session: session not in back, state.chain))
    base = state.base
    chain = state.chain
    count = sum(
        len(state.records[session][0].targets) for session in done if state.records[session]
    )
    taken = any(one.taken for session in done for one in state.records[session])
    if done and (taken or not 0 < count <= REPLAYED):
        base = with_added(method, base, [one for session in done for one in state.records[session]])
        chain = chain[len(done) :]
    records = {
        # of a correction, those that are taken are last
        name: [one for one in added if name in chain or not one.taken]
        for name, added in state.records.items()
        if name in chain or (features and not (added and added[0].taken))
    }
    return replace(state, base=base, chain=chain, undo=undo, records=records)


def roll_back(state: State) -> tuple[State, dict[str, Any]]:
    """The state before the last session or correction, to the bit, and what its header said."""
    *undo, last = state.undo
    records = {name: added for name, added in state.records.items() if name != last.session}
    for name, added in records.items():
        records[name] = [
            one.of(restored(one.table, "targets", below(last.rows, f"records/{name}/{i}/")))
            for i, one in enumerate(added)
        ]
    kept, seen = last.rows_before(state.kept, state.seen)
    chain = tuple(session for session in state.chain if session != last.session)
    tensors = last.before(state.tensors)
    return (
        State(tensors, state.base, chain, records, tuple(undo), kept, seen, state.thumbnails),
        last.header,
    )


def _for_merging(undo: Undo, method: Method) -> Undo:
    """What a merge needs of an earlier state: sums, in place of weights that follow from them and
    of tunings.
    """
    names = {"_extra_state"}
    for name, part in editable_parts(method).items():
        names |= {f"{name}.{key}" for key in part.by_difference}
    tensors = {name: tensor for name, tensor in undo.tensors.items() if name in names}
    shapes = {name: shape for name, shape in undo.shapes.items() if name in names}
    return replace(undo, tensors=tensors, shapes=shapes, whole=False, rows={})


def _block(shape: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(0, n) for n in shape)


def _difference(
    old: Mapping[str, Tensor], new: Mapping[str, Tensor]
) -> tuple[dict[str, list[int]], dict[str, Tensor]]:
    """(shapes of old tensors that are the first block of the new ones, other old tensors that are
    not in ``new``).
    """
    shapes: dict[str, list[int]] = {}
    changed: dict[str, Tensor] = {}
    for name, tensor in old.items():
        now = new.get(name)
        if (
            now is None
            or now.ndim != tensor.ndim
            or not torch.equal(now[_block(tensor.shape)], tensor.to(now))
        ):
            changed[name] = tensor
        elif now.shape != tensor.shape:
            shapes[name] = list(tensor.shape)
    return shapes, changed
