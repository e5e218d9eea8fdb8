"""How the sums of a method follow a change of what was learned.

Where the features of all pictures are recorded, the sums are added up anew with the labels of
today, in the order of the steps: they are then those of a model that was taught so, to the bit.
Where they are not, what was added under a wrong label is subtracted there and added where it
belongs, which is true to rounding.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from safecl.classifier.edits.ledger import Change, Ledger
from safecl.classifier.modelfile.state import Added, State, ridge_heads
from safecl.classifier.settings import Memory
from safecl.errors import NotCorrectable
from safecl.lines import naming
from safecl.methods import parts
from safecl.methods.method import Method

Features = Mapping[str, Tensor]


@dataclass
class Moved:
    """What a change has found out: by part, the features (n, d) of its pictures as they were
    learned, and by ridge head; what was added to ridge heads, and what leaves Gram matrices.
    """

    given: dict[str, Tensor] = field(default_factory=dict)
    heads: dict[str, Tensor] = field(default_factory=dict)
    added: list[Added] = field(default_factory=list)
    taken: list[Added] = field(default_factory=list)


def check_correctable(method: Method) -> None:
    """Refuse a method whose sums do not say of themselves what its heads answer."""
    parts.corrected(method)
    heads = ridge_heads(method)
    if len({id(head.statistics) for head in heads.values()}) < len(heads):
        raise NotCorrectable("correct.shared-statistics")


def feeds(method: Method) -> dict[str, str]:
    """By part of a method that has learned from features, the ridge head that was given the same
    ones, if any was: itself, the one it reads, or one that reads the same frozen network.
    """
    heads = ridge_heads(method)
    reads = parts.reads_of(method)
    moving = parts.moving_of(method)
    found = {}
    for part, names in reads.items():
        alike = [head for head in heads if reads.get(head) == names]
        if part in heads:
            found[part] = part
        elif names[0] in heads:
            found[part] = names[0]
        elif alike and not {*names} & moving:
            found[part] = alike[0]
    return found


def record_of(state: State, step: str, head: str) -> Added | None:
    """What a step has added to a ridge head, where that is kept."""
    every = state.records.get(step, ())
    return next((one for one in every if one.head == head and not one.taken), None)


def move(
    method: Method,
    change: Change,
    state: State,
    today: Features,
    memory: Memory,
    still: Container[str] = (),
) -> Moved:
    """Correct the sums of ``method``, but for Gram matrices.

    ``today``: by network, the features (n, d) that it gives now of the pictures, where these are at
    hand. ``still``: the steps since any network has moved, the change's own with them.
    """
    device = method.backbone.device
    now = _read(method, today)
    reads = parts.reads_of(method)
    moved = Moved()
    rounded = set[str]()
    for head in ridge_heads(method):
        if head not in reads and head not in now:  # it follows from others
            continue
        rows = [now[head][:0]] if head in now else []
        for step, (here, places) in change.touched.items():
            record = record_of(state, step, head) if head in reads else None
            if step == change.step:
                own = now[head][here.to(device)]
                moved.added.append(Added.of_memory(memory, head, own, change.new[here]))
                values = moved.added[-1].values
            elif record is not None:
                values = record.only(places.to(record.targets.device)).values
                rounded |= set() if record.scale is None else {head}
            else:
                _check_known(method, head, head in now, step in still)
                values = now[head][here.to(device)]
            rows.append(values.to(device))
            leaving = change.new[here] < 0
            if head in reads and leaving.any() and step not in state.chain:
                out = rows[-1][leaving.to(device)]
                moved.taken.append(Added(head, out, torch.full((len(out),), -1)))
        moved.heads[head] = torch.cat(rows)
    fed = feeds(method)
    for part, names in reads.items():
        head = fed.get(part, "")
        # Features that are computed once more differ in their last digits; rounded ones in more.
        same = head in (part, names[0]) or head not in rounded or part not in now
        if head in moved.heads and same:
            moved.given[part] = moved.heads[head]
        elif part in now:
            moved.given[part] = now[part]
        elif _summed(method, part):
            raise NotCorrectable("correct.not-kept")
    parts.correct(method, moved.given, change.old.to(device), change.new.to(device))
    return moved


def _read(method: Method, today: Features) -> dict[str, Tensor]:
    """By part of ``method``, what it would read of pictures now, where that is at hand."""
    found = dict[str, Tensor]()
    every = {part.name: part for part in method.parts() if part.reads}
    for part in every.values():
        source = every.get(part.reads[0], part)
        if {*source.reads} <= today.keys():
            rows = [today[name] for name in source.reads]
            found[part.name] = rows[0] if len(rows) == 1 else source.together(*rows)
    return found


def _check_known(method: Method, head: str, at_hand: bool, still: bool) -> None:
    """Refuse pictures whose features nobody knows: they are not kept and cannot be computed."""
    moving = {*parts.reads_of(method).get(head, ())} & parts.moving_of(method)
    if not at_hand:
        raise NotCorrectable("correct.not-kept")
    if moving and not still:
        raise NotCorrectable("correct.moved-on", learners=naming(moving))


def _summed(method: Method, part: str) -> bool:
    """Whether a part has sums over pictures now."""
    module: Any = method.get_submodule(part)
    return any(getattr(module, name).numel() for name in module.by_difference)


def evidence(method: Method, change: Change, before: State, after: State, latest: str) -> None:
    """The evidence for β follows in the steps whose features are recorded; ``latest``: the last
    step before the change that says anything of it.
    """
    heads = ridge_heads(method)
    device = method.backbone.device
    for step in change.touched:
        old = before.records.get(step, ())
        for n, one in enumerate(after.records.get(step, ())):
            if one.taken:
                continue
            now = one.values.to(device), one.targets.to(device)
            was = now[0][:0], now[1][:0]
            if n < len(old):
                was = old[n].values.to(device), old[n].targets.to(device)
            heads[one.head].correct_evidence(was, now, latest=step in (latest, change.step))


def complete(method: Method, ledger: Ledger, state: State) -> bool:
    """Whether the features of every learned picture are recorded, for each ridge head with sums of
    its own.
    """
    heads = {*feeds(method).values()}
    if not heads or any(one.taken for added in state.records.values() for one in added):
        return False
    sizes = ledger.ends.diff().tolist()
    return all(
        heads <= {one.head for one in state.records.get(step, ())}
        for step, size in zip(ledger.steps, sizes, strict=True)
        if size
    )


@torch.no_grad()
def add_up(method: Method, state: State, steps: Sequence[str]) -> None:
    """Make the sums of ``method`` anew, but for Gram matrices, from what ``steps`` have recorded.

    The tuning, the offsets of classes and what was observed of other features stay.
    """
    fed = feeds(method)
    heads = ridge_heads(method)
    device = method.backbone.device
    rounded = {one.head for step in steps for one in state.records[step] if one.scale is not None}
    reads = parts.reads_of(method)
    fed_modules = {
        part: method.get_submodule(part)
        for part, head in fed.items()
        if head not in rounded or head in (part, reads[part][0])
    }
    judged = {
        name: head
        for name, head in heads.items()
        if all(name in {one.head for one in state.records[step]} for step in steps)
    }
    for each in {**judged, **fed_modules}.values():
        each.clear()  # type: ignore[operator]
    for step in steps:
        for one in state.records[step]:
            values = one.values.to(device)
            targets = one.targets.to(device)
            none = torch.full_like(targets, -1)
            for part, module in fed_modules.items():
                if fed[part] == one.head and len(targets):
                    module.correct(values, none, targets)  # type: ignore[operator]
            if one.head in judged:
                empty = values[:0], targets[:0]
                judged[one.head].correct_evidence(empty, (values, targets), latest=True)
