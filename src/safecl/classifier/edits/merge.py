"""Two models that were taught apart from a common beginning become one.

Statistics are sums, so those of the sessions that one model has and the other lacks are added, each
picture once.
Heads on a network that both share, such as the slow learner of SAFE, are then those of one model
that had learned everything. Of networks that each model went on tuning, such as the fast learner,
the tuning is averaged.
"""

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.classifier.answers.calibrate import recalibrate
from safecl.classifier.edits.ledger import Change, Ledger
from safecl.classifier.edits.sums import add_up, complete, evidence, move
from safecl.classifier.edits.tables import history_after
from safecl.classifier.model import Model
from safecl.classifier.modelfile.history import (
    BRINGING,
    CORRECTIONS,
    after,
    as_labels,
    check_labels,
    check_not_frozen,
    new_id,
    renamed,
    step,
)
from safecl.classifier.modelfile.rows import Table, stacked
from safecl.classifier.modelfile.state import (
    Added,
    State,
    grams_of,
    set_grams,
    settled,
    tensors_of,
)
from safecl.classifier.modelfile.store import fitting
from safecl.classifier.seen import learned_as
from safecl.errors import NotCorrectable, SafeclError
from safecl.lines import counted, naming
from safecl.methods import parts
from safecl.methods.catalog import make_method
from safecl.methods.method import Method, register_classes
from safecl.streams.labels import sorted_classes


def merge(one: Model, other: Model, backbone: Backbone) -> Model:
    """A model that knows what either knows. Its sessions cannot be rolled back."""
    for label, meant in zip(other.classes, as_labels(one.header, other.classes), strict=True):
        if label != meant:  # a number there and a word here
            other = Model(renamed(other.header, label, meant), other.state, other.file)
    shared = _shared(one, other, backbone)
    mine, more = (
        [entry for entry in m.header["history"] if entry["id"] not in shared] for m in (one, other)
    )
    mine, more = (
        [entry for entry in entries if entry["what"] in ("learn", *CORRECTIONS)]
        for entries in (mine, more)
    )
    if not more:
        raise SafeclError("merge.second-nothing")
    if not mine:
        raise SafeclError("merge.first-nothing")
    corrected = [
        shared & {name for entry in entries for name in entry.get("touched", ())}
        for entries in (mine, more)
    ]
    if all(corrected):
        raise SafeclError("merge.corrected-twice")
    for a, b, entries, twice in (
        (one, other, more, corrected[1]),
        (other, one, mine, corrected[0]),
    ):
        tensors = b.state.before([entry["id"] for entry in entries]) if shared else {}
        if tensors is not None and not twice:
            learned = [entry["id"] for entry in entries if entry["what"] in BRINGING]
            with fitting(a.file), fitting(b.file):
                # without Gram matrices
                earlier = Model({**b.header, "classes": []}, State(tensors)).method(backbone)
                return _merged(a, b, earlier, shared, learned, backbone)
    raise SafeclError("merge.neither-holds")


def _shared(one: Model, other: Model, backbone: Backbone) -> set[str]:
    """The steps in both histories, also those of an earlier merge; models that cannot be merged are
    refused.
    """
    both = (one, other)
    facts = []
    for model in both:
        check_not_frozen(model.header)
        alike = {
            key: getattr(model.settings, key) for key in ("method", "backbone", "seed", "memory")
        }
        weights = model.header["backbone"]["weights"]
        facts.append(
            {
                **alike,
                "whether they were tuned": model.tuned,
                "the weights of the backbone": weights,
                "the size of pictures": model.transform,
            }
        )
    for key in facts[0]:
        if facts[0][key] != facts[1][key]:
            raise SafeclError("merge.differ", what=key)
    made = make_method(one.answering, backbone, one.settings.seed).parts()
    frozen = tuple(
        f"{part.name}." for part in made if part.kind == "trained" and part.merge == "keep"
    )
    if not frozen and any(part.merge == "refuse" for part in made):
        title = one.answering.title
        raise SafeclError("merge.no-network", title=title)
    histories = [
        {entry["id"]: entry["classes"] for entry in model.header["history"]} for model in both
    ]
    shared = histories[0].keys() & histories[1].keys()
    common = [{label for past in shared for label, _ in history[past]} for history in histories]
    if common[0] != common[1]:
        names = ", ".join(sorted(map(str, common[0] ^ common[1])))
        own = [
            entry
            for model in both
            for entry in model.header["history"]
            if entry["id"] not in shared
        ]
        if told := ", ".join(
            entry["name"] for entry in own if shared & {*entry.get("touched", ())}
        ):
            raise SafeclError("merge.corrected-in-one", steps=told, classes=names)
        raise SafeclError("merge.classes-differ", classes=names)
    tuned = [
        {k: v for k, v in model.state.tensors.items() if k.startswith(frozen)} for model in both
    ]
    same = tuned[0].keys() == tuned[1].keys() and all(
        torch.equal(v, tuned[1][k]) for k, v in tuned[0].items()
    )
    if not same or (not shared and tuned[0]):
        raise SafeclError("merge.other-first-session")
    check_labels([*one.classes, *other.classes], [], "the two models")
    return shared


def _merged(
    a: Model,
    b: Model,
    before: Method,
    shared: set[str],
    sessions: Sequence[str],
    backbone: Backbone,
) -> Model:
    """``a`` with the ``sessions`` that ``b`` has learned since it was ``before``; pictures that
    both have learned since are those of ``a`` alone.
    """
    method = a.method(backbone, learning=True)
    now = Model(b.header, b.state, b.file).method(backbone, learning=not shared)
    twice = _learned_by_both(a, b, shared)
    more = _since(b, twice, shared, sessions)
    if len(twice.rows):
        _take_out(now, twice, b, more)
    register_classes(method, tuple(b.classes))
    index = torch.tensor([method.classes.index(label) for label in b.classes])
    parts.merge(method, now, before, index.to(backbone.device))
    state = _together(a, more, index)
    header = {**a.header, "classes": method.classes}
    header["history"] = [*a.header["history"], *_later(a, b, twice, shared)]
    ledger = Ledger.of(Model(header, state))
    exact = complete(method, ledger, state)
    if shared:  # the features that were added since are at hand
        own = (name for name in sessions if name in state.records)
        state = replace(state, chain=(*state.chain, *own))
        set_grams(method, state)
    elif exact:
        state = replace(state, base={}, chain=tuple(state.records))
        set_grams(method, state)
    else:
        state = replace(state, base=grams_of(method), chain=())
    if exact:
        add_up(method, state, [name for name in ledger.steps if name in state.records])
    method.refresh()
    method.eval()
    state = settled(replace(state, tensors=tensors_of(method), undo=()), method, a.settings)
    entry = step("merge", f"a model of {counted(len(b.classes), 'class', 'classes')}")
    calibration = recalibrate(method, state.kept, state.seen)
    return Model(after(header, entry, method.classes, calibration), state)


def _learned_by_both(a: Model, b: Model, shared: Container[str]) -> Change:
    """The change of ``b`` by which it has not learned the pictures that ``a`` has learned since
    they parted, too; refused where these are of other classes there.
    """
    ledger = Ledger.of(b)
    rows = ledger.rows_since(shared)
    known = []
    for model, book in ((a, Ledger.of(a)), (b, ledger)):
        here = book.rows_since(shared)
        own = {"hashes": book.hashes[here], "classes": book.classes[here]}
        known.append(learned_as(own, model.classes))
    both = sorted(known[0].keys() & known[1].keys())
    pairs = [[", ".join(map(str, sorted_classes(k[mark]))) for k in known] for mark in both]
    if other := [pair for pair in pairs if pair[0] != pair[1]]:
        told = {f"{mine} in the first, {theirs} in the second" for mine, theirs in other}
        raise SafeclError(
            "merge.labels-differ", count=counted(len(other), "picture"), labels=naming(sorted(told))
        )
    rows = rows[torch.isin(ledger.hashes[rows], torch.tensor(both, dtype=torch.int64))]
    return Change(new_id(), ledger, rows, torch.full_like(rows, -1), b.classes, stay=True)


def _take_out(method: Method, change: Change, model: Model, more: State) -> None:
    """Correct the ``method`` of a ``model`` by what is recorded of the pictures; ``more``: what it
    has learned since, without them.
    """
    try:
        moved = move(method, change, model.state, {}, model.settings.memory)
    except NotCorrectable:
        count = len({*change.ledger.hashes[change.rows].tolist()})
        raise SafeclError("merge.learned-twice", count=counted(count, "picture")) from None
    evidence(method, change, model.state, more, latest=change.ledger.steps[-1])
    if any(len(gram) for gram in grams_of(method).values()):
        records = model.state.records | more.records
        if {*change.touched} & {*model.state.chain}:
            set_grams(method, replace(model.state, records=records))
        taken = State(
            base=grams_of(method), chain=(change.step,), records={change.step: moved.taken}
        )
        set_grams(method, taken)


def _since(model: Model, change: Change, shared: Container[str], sessions: Sequence[str]) -> State:
    """What a model has kept of pictures of ``sessions``, those since it parted, without those of
    the change.
    """
    state = model.state
    ledger = change.ledger
    records = dict[str, list[Added]]()
    for session in sessions:
        stay = torch.ones(len(ledger.classes[ledger.rows_of(session)]), dtype=torch.bool)
        stay[change.touched.get(session, (None, []))[1]] = False
        for one in state.records.get(session, ()):
            if not one.taken:
                records.setdefault(session, []).append(one.only(stay.to(one.targets.device)))
    rows = ledger.rows_since(shared)
    rows = rows[~torch.isin(rows, change.rows)]
    start = next((undo.header["kept"] for undo in state.undo if undo.session in sessions), 0)
    kept = {name: each[start:] for name, each in state.kept.items()}
    if kept:
        stay = ~torch.isin(kept["hashes"], ledger.hashes[change.rows])
        kept = {name: each[stay] for name, each in kept.items()}
    seen = {name: each[rows] for name, each in state.seen.items()}
    return State(records=records, kept=kept, seen=seen, thumbnails=state.thumbnails)


def _together(a: Model, more: State, index: Tensor) -> State:
    """The state of ``a`` with what another model has kept since they parted; its class i is class
    ``index[i]``.
    """
    state = a.state
    records = {
        session: [
            replace(one, targets=index.to(one.targets.device)[one.targets]) for one in several
        ]
        for session, several in more.records.items()
    }
    kept = _joined(state.kept, more.kept, "targets", index)
    seen = _joined(state.seen, more.seen, "classes", index)
    new = {*more.seen["hashes"].tolist()} - {*state.seen["hashes"].tolist()}
    shown = state.thumbnails
    if a.settings.thumbnails:
        shown = (*shown, *(one for one in more.thumbnails if one.picture in new))
    return replace(state, records=state.records | records, kept=kept, seen=seen, thumbnails=shown)


def _joined(a: Table, b: Table, key: str, index: Tensor) -> Table:
    """The rows of ``a``, and those of ``b`` with the classes of ``a``."""
    if key not in b or key not in a:
        return a
    return stacked(a, {**b, key: index[b[key]]})


def _later(a: Model, b: Model, twice: Change, shared: Container[str]) -> list[dict[str, Any]]:
    """What ``b`` has done since, but for renaming what ``a`` has renamed alike."""
    mine = {past["name"] for past in a.header["history"] if past["what"] == "rename"}
    past = history_after(b.header["history"], twice)
    fresh = [entry for entry in past if entry["id"] not in shared]
    return [one for one in fresh if one["what"] != "rename" or one["name"] not in mine]
