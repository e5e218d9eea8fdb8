"""How what a model file says of pictures follows a change: recorded features, features to calibrate
with, hashes and classes, and the counts of the history.
"""

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from safecl.classifier.answers.calibrate import KEPT_PER_CLASS
from safecl.classifier.edits.ledger import Change
from safecl.classifier.edits.sums import Features
from safecl.classifier.modelfile.rows import LABELS, LOOK, Table, edited, stacked
from safecl.classifier.modelfile.state import State
from safecl.streams.labels import Label, sorted_classes

Entry = dict[str, Any]


def changed(state: State, change: Change, more: Features) -> tuple[State, Table]:
    """(the tables of a state afterwards, rows to undo that with; see ``Undo``).

    ``more``: features (n, d) of the pictures as they would be kept to calibrate with, where the
    method judges itself.
    """
    state, rows = _records(state, change)
    kept, was = _kept(state.kept, change, more)
    rows |= {f"kept/{key}": value for key, value in was.items()}
    seen, was = _seen(state, change)
    rows |= {f"seen/{key}": value for key, value in was.items()}
    marks = {*change.ledger.hashes[change.rows].tolist()}
    shown = tuple(one for one in state.thumbnails if one.picture not in marks)
    return replace(state, kept=kept, seen=seen, thumbnails=shown), rows


def _records(state: State, change: Change) -> tuple[State, Table]:
    records = {}
    rows = Table()
    for step, added in state.records.items():
        here, places = change.touched.get(step, (None, None))
        records[step] = list(added)
        for i, one in enumerate(added):
            if one.taken:
                continue
            targets = one.targets.cpu().clone()
            if places is not None:
                targets[places] = change.new[here]
            table, was = edited(one.table, "targets", change.index[targets])
            rows |= {f"records/{step}/{i}/{key}": value for key, value in was.items()}
            records[step][i] = one.of(table)
    return replace(state, records=records), rows


def _seen(state: State, change: Change) -> tuple[Table, Table]:
    """(hashes and classes of all pictures, changes of those that were there)."""
    count = len(state.seen["classes"])
    classes = change.index[change.classes]
    seen, was = edited(state.seen, "classes", classes[:count])
    more = {"hashes": change.ledger.hashes[count:], "classes": classes[count:]}
    return {key: torch.cat([own, more[key]]) for key, own in seen.items()}, was


def _kept(kept: Table, change: Change, features: Features) -> tuple[Table, Table]:
    """(features to calibrate with, changes): those of the same pictures as before, of new ones, and
    of others where a class has few.
    """
    if not kept:  # the method does not judge itself
        return kept, {}
    marks = change.ledger.hashes[change.rows].tolist()
    pairs = zip(marks, change.old.tolist(), strict=True)
    new = dict(zip(pairs, change.new.tolist(), strict=True))
    there = set(kept["hashes"].tolist())
    own = zip(kept["hashes"].tolist(), kept["targets"].tolist(), strict=True)
    classes = change.index[[new.get((mark, c), c) for mark, c in own]]
    kept, was = edited(kept, "targets", classes)
    names = kept.keys() - {*LABELS, LOOK}
    if not names <= features.keys():
        return kept, was
    count = Counter[int]()
    more = list[int]()
    for i, mark in enumerate(marks):
        c = int(change.index[change.new[i]])
        if mark not in there and c >= 0 and count[c] < KEPT_PER_CLASS:
            more.append(i)
            there.add(mark)
            count[c] += 1
    if not more:
        return kept, was
    rows = {name: features[name][more].to(kept[name]) for name in names}
    rows |= {LOOK: features[LOOK][more].cpu()} if LOOK in features else {}
    rows["targets"] = change.index[change.new[more]]
    rows["hashes"] = torch.tensor([marks[i] for i in more])
    was = was or {"targets": kept["targets"], "gone": torch.zeros(0, dtype=torch.int64)}
    return stacked(kept, rows), was


def history_after(past: Sequence[Entry], change: Change) -> list[Entry]:
    """The history with the pictures and classes of today, by the names that they have."""
    history = copy.deepcopy(list(past))
    labels = change.labels
    gone = {labels[c] for c in change.gone}
    moved = {labels[c] for c in _numbers(change.old, change.new)} - gone
    for entry in history:
        entry["classes"] = [pair for pair in entry["classes"] if pair[0] not in gone]
        if entry["id"] in change.touched:
            own = change.classes[change.ledger.rows_of(entry["id"])]
            found = Counter(labels[c] for c in own.tolist() if c >= 0)
            entry["classes"] = [[label, found[label]] for label in sorted_classes(found)]
    known: set[Label] = set()
    for entry in history:  # a class is new where it comes first
        here = {label for label, _ in entry["classes"]}
        new = {label for label in entry["new"] if label not in moved | gone}
        new |= (moved & here) - known
        entry["new"] = entry["new"] if new == set(entry["new"]) else list(sorted_classes(new))
        known |= here
    return history


def rewritten(past: Sequence[Entry], now: Sequence[Entry], labels: Sequence[Label]) -> list[Entry]:
    """What entries of the history said that say something else now, by class index; see
    ``Rewritten``.
    """
    index = {label: c for c, label in enumerate(labels)}
    found = []
    for number, (was, after) in enumerate(zip(past, now, strict=True)):
        if was != after:
            classes = [[index[label], count] for label, count in was["classes"]]
            new = [index[label] for label in was["new"]]
            found.append({"number": number, "classes": classes, "new": new})
    return found


def _numbers(*classes: Tensor) -> set[int]:
    return {c for each in classes for c in each.tolist() if c >= 0}
