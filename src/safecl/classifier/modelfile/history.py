"""The header of a model: what was done to it, the counts that follow, names of classes. No torch is
imported.
"""

import copy
import re
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import safecl
from safecl.classifier.modelfile.schema import MAX_STEPS, Header
from safecl.errors import SafeclError, unknown
from safecl.streams.labels import MAX_CLASSES, Label, check_name, label_problems, meant

NUMBER = re.compile("0|-?[1-9][0-9]{0,17}")  # as numbers of 64 bits are written
# steps that change what was learned, and are rolled back like sessions
CORRECTIONS = (
    "correct",
    "split",
    "join",
)
BRINGING = ("learn", "correct")  # steps that bring pictures
WHAT = {
    "learn": "learned",
    "forget": "forgot",
    "rename": "renamed",
    "merge": "merged with",
    "correct": "corrected",
    "split": "split",
    "join": "joined",
}


def new_id() -> str:
    """An id for a step."""
    return uuid.uuid4().hex[:12]


def step(what: str, name: str, **more: Any) -> dict[str, Any]:
    """An entry of the history, with when and with what it was done; ``what``: a key of ``WHAT``."""
    told = {
        "what": what,
        "id": new_id(),
        "name": name,
        "classes": [],
        "new": [],
        **more,
    }
    return {
        **told,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "safecl": safecl.__version__,
    }


def after(
    header: Header,
    entry: dict[str, Any],
    classes: Iterable[Label],
    calibration: dict[str, Any] | None,
    **more: Any,
) -> Header:
    """The header after a step, its ``entry`` in the history, which may be full."""
    if len(header["history"]) >= MAX_STEPS:
        raise SafeclError("model.history.full", most=MAX_STEPS)
    said = {
        "classes": list(classes),
        "calibration": calibration,
        "history": [*header["history"], entry],
    }
    return {**header, **said, **more}


def sessions(header: Header) -> int:
    """How many sessions were learned."""
    return sum(entry["what"] == "learn" for entry in header["history"])


def check_not_frozen(header: Header) -> None:
    """Refuse a change of a model that only predicts."""
    if header["frozen"]:
        raise SafeclError("model.frozen")


def check_auditable(header: Header) -> None:
    """Refuse a model that keeps no features of its pictures, or could not leave one out."""
    if header["frozen"] or header["calibration"] is None:
        raise SafeclError("audit.nothing-kept")


def steps_back(header: Header) -> list[dict[str, Any]]:
    """The entries of the history that can be rolled back, the oldest first."""
    kept = {one["session"] for one in header["undo"] if one["whole"]}
    return [entry for entry in header["history"] if entry["id"] in kept]


def check_rollback(header: Header) -> dict[str, Any]:
    """The entry of the step that is rolled back next; refuse a model without one."""
    check_not_frozen(header)
    if kept := steps_back(header):
        return kept[-1]
    alone = [entry["what"] for entry in header["history"]] == ["learn"]
    raise SafeclError("rollback.one-session" if alone else "rollback.not-kept")


def counts(header: Header) -> dict[Label, int]:
    """The pictures of each class that the model knows."""
    found: dict[Label, int] = dict.fromkeys(header["classes"], 0)
    for entry in header["history"]:
        for label, count in entry["classes"]:
            if label in found:
                found[label] += count
    return found


def check_labels(known: Iterable[Label], labels: Iterable[Label], name: str) -> None:
    """Refuse ``labels`` that no class should have, two of all that a person would read as one, and
    too many.
    """
    if len({*known, *labels}) > MAX_CLASSES:
        raise SafeclError("model.classes.too-many", most=MAX_CLASSES, name=name)
    for label in dict.fromkeys(labels):
        check_name(label)
    for error in label_problems(labels, name, known):
        raise error


def find(header: Header, label: Label) -> Label:
    """The class that ``label`` means: itself, or what is spelt as it."""
    classes = header["classes"]
    found = as_label(header, label)
    if found not in classes:
        near = meant(found, classes)
        raise unknown("class", str(label), map(str, classes), None if near is None else str(near))
    return found


def as_label(header: Header, label: Label) -> Label:
    """What ``label`` means to a model; see ``as_labels``."""
    return as_labels(header, [label])[0]


def as_labels(header: Header, labels: Iterable[Label]) -> list[Label]:
    """What ``labels`` mean to a model: the number 1 and the word "1", as of a folder, are one
    class.

    A class that is new is a number, or a word, where all classes are numbers, or words that spell
    numbers.
    """
    known: dict[str, Label] = {str(label): label for label in header["classes"]}
    numbers = bool(known) and all(isinstance(label, int) for label in known.values())
    spelt = bool(known) and all(
        isinstance(label, str) and NUMBER.fullmatch(label) for label in known.values()
    )

    def written(label: Label) -> Label:
        word = str(label)
        if word in known:
            return known[word]
        return int(word) if numbers and NUMBER.fullmatch(word) else word if spelt else label

    return [written(label) for label in labels]


def renamed(header: Header, old: Label, new: Label) -> Header:
    """The header with another name for a class, also in its past."""
    old = find(header, old)
    if old == new:
        raise SafeclError("rename.same", label=old)
    if new in header["classes"]:
        raise SafeclError("rename.taken", label=new)
    check_labels([label for label in header["classes"] if label != old], [new], "the model")
    found = copy.deepcopy(header)
    found["classes"] = _changed(found["classes"], old, new)
    for entry in found["history"]:
        entry["new"] = _changed(entry["new"], old, new)
        entry["classes"] = [
            [*_changed([label], old, new), count] for label, count in entry["classes"]
        ]
        if entry.get("to") == old:
            entry["to"] = new
        if "was" in entry:
            entry["was"] = [[mark, *_changed([label], old, new)] for mark, label in entry["was"]]
    entry = step("rename", f"{old} → {new}", to=new)
    return after(found, entry, found["classes"], found["calibration"])


def _changed(labels: list[Label], old: Label, new: Label) -> list[Label]:
    return [new if label == old else label for label in labels]
