"""The header of a model: what was done to it, the counts that follow, names of classes. No torch is imported."""

import copy
import re
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import safecl
from safecl.classifier.enough import interval, range_text, sentences
from safecl.classifier.schema import MAX_STEPS, Header
from safecl.errors import SafeclError, unknown
from safecl.report import words
from safecl.report.table import NONE, Table, make_table
from safecl.streams.labels import MAX_CLASSES, Label, check_name, label_problems

CORRECTIONS = ("correct", "split", "join")  # steps that change what was learned, and are rolled back like sessions
BRINGING = ("learn", "correct")  # steps that bring pictures
MAX_PAIRS = 3  # of confused classes that are named
WHAT = {"learn": "learned", "forget": "forgot", "rename": "renamed", "merge": "merged with", "correct": "corrected",
        "split": "split", "join": "joined"}  # fmt: skip


def step(what: str, name: str, **more: Any) -> dict[str, Any]:
    """An entry of the history, with when and with what it was done; ``what``: a key of ``WHAT``."""
    told = {"what": what, "id": uuid.uuid4().hex[:12], "name": name, "classes": [], "new": [], **more}
    return {**told, "date": datetime.now(UTC).isoformat(timespec="seconds"), "safecl": safecl.__version__}


def after(
    header: Header, entry: dict[str, Any], classes: Iterable[Label], calibration: dict[str, Any] | None, **more: Any
) -> Header:
    """The header after a step, its ``entry`` in the history, which may be full."""
    if len(header["history"]) >= MAX_STEPS:
        raise SafeclError(f"The history of the model is full: a file holds {MAX_STEPS:,} steps; teach a new model.")
    said = {"classes": list(classes), "calibration": calibration, "history": [*header["history"], entry]}
    return {**header, **said, **more}


def sessions(header: Header) -> int:
    """How many sessions were learned."""
    return sum(entry["what"] == "learn" for entry in header["history"])


def check_not_frozen(header: Header) -> None:
    """Refuse a change of a model that only predicts."""
    if header["frozen"]:
        raise SafeclError("This model is frozen: it only predicts; use the model it was made from.")


def steps_back(header: Header) -> list[dict[str, Any]]:
    """The entries of the history that can be rolled back, the oldest first."""
    kept = {one["session"] for one in header["undo"] if one["whole"]}
    return [entry for entry in header["history"] if entry["id"] in kept]


def check_rollback(header: Header) -> dict[str, Any]:
    """The entry of the step that is rolled back next; refuse a model without one."""
    check_not_frozen(header)
    if kept := steps_back(header):
        return kept[-1]
    why = "no earlier session is kept; take a copy of its file, or teach a new model"
    if [entry["what"] for entry in header["history"]] == ["learn"]:
        why = "it has learned one session only; delete its file to start over"
    raise SafeclError(f"The model cannot be rolled back: {why}.")


def counts(header: Header) -> dict[Label, int]:
    """The pictures of each class that the model knows."""
    found: dict[Label, int] = dict.fromkeys(header["classes"], 0)
    for entry in header["history"]:
        for label, count in entry["classes"]:
            if label in found:
                found[label] += count
    return found


def class_table(header: Header) -> Table:
    """Each class: the session in which it was first learned, its pictures in all, and how well it is answered."""
    first: dict[Label, str] = {}
    for number, entry in enumerate(header["history"], 1):
        for label, _ in entry["classes"]:
            first.setdefault(label, f"{number} {entry['name']} ({entry['date'][:10]})")
    rows = [[str(label), first.get(label, NONE), f"{n:,}"] for label, n in counts(header).items()]
    heads = ["class", "learned in", "pictures"]
    if calibration := header["calibration"]:
        heads += ["leave-one-out", "95 % interval"]
        for row, (judged, right, _) in zip(rows, calibration["classes"], strict=True):
            row += [f"{right} of {judged}", range_text(*interval(right / judged, judged))] if judged else [NONE, NONE]
    return make_table("Classes", heads, rows, words=["learned in"])


def advice(header: Header) -> list[str]:
    """Sentences: what is confused, of which classes more pictures would help."""
    if not (calibration := header["calibration"]):
        return []
    names, told = header["classes"], []
    for a, b, n in calibration["confused"][:MAX_PAIRS]:
        told.append(f"{names[a]} is confused with {names[b]} ({n} of {calibration['classes'][a][0]} pictures).")
    return told + sentences(calibration, counts(header))


def history_table(header: Header) -> Table:
    """What was done to the model."""
    rows = []
    for number, entry in enumerate(header["history"], 1):
        learned = entry["what"] == "learn"
        row = [str(number), WHAT[entry["what"]], str(entry["name"]), entry["date"].replace("T", " ")[:16]]
        row.append(words.count(sum(count for _, count in entry["classes"]) if learned else None))
        row.append(words.count(len(entry["new"]) if learned else None))
        rows.append([*row, words.count(entry.get("seconds")), words.bare_percent(entry.get("accuracy"))])
    heads = ("", "what", "name", "date", "pictures", "new classes", "seconds", "accuracy, %")
    return make_table("History", heads, rows, words=["what", "name", "date"])


def check_labels(known: Iterable[Label], labels: Iterable[Label], name: str) -> None:
    """Refuse ``labels`` that no class should have, two of all that a person would read as one, and too many."""
    if len({*known, *labels}) > MAX_CLASSES:
        raise SafeclError(f"A model knows {MAX_CLASSES:,} classes at most, and there are more in {name}.")
    for label in dict.fromkeys(labels):
        check_name(label)
    for sentence in label_problems([*known, *labels], name):
        raise SafeclError(sentence)


def find(header: Header, label: Label) -> Label:
    """The class that a word of the command line means: itself, or the number it spells."""
    classes = header["classes"]
    if label in classes:
        return label
    match: Label | None = next((known for known in classes if str(known) == str(label)), None)
    if match is None:
        raise unknown("class", str(label), map(str, classes))
    return match


def as_label(header: Header, word: str) -> Label:
    """What a word of the command line means as a name: a number, where that is a class or all classes are numbers."""
    numbers = [label for label in header["classes"] if isinstance(label, int)]
    fits = len(numbers) == len(header["classes"]) or word in map(str, numbers)
    return int(word) if fits and re.fullmatch("-?[0-9]+", word) else word


def renamed(header: Header, old: Label, new: Label) -> Header:
    """The header with another name for a class, also in its past."""
    old = find(header, old)
    if old == new:
        raise SafeclError(f"The class is called {old!r} already.")
    if new in header["classes"]:
        raise SafeclError(f"There is a class {new!r} already; safecl join makes one class of two.")
    check_labels([label for label in header["classes"] if label != old], [new], "the model")
    found = copy.deepcopy(header)
    found["classes"] = _changed(found["classes"], old, new)
    for entry in found["history"]:
        entry["new"] = _changed(entry["new"], old, new)
        entry["classes"] = [[*_changed([label], old, new), count] for label, count in entry["classes"]]
        if entry.get("to") == old:
            entry["to"] = new
        if "was" in entry:
            entry["was"] = [[mark, *_changed([label], old, new)] for mark, label in entry["was"]]
    entry = step("rename", f"{old} → {new}", to=new)
    return after(found, entry, found["classes"], found["calibration"])


def _changed(labels: list[Label], old: Label, new: Label) -> list[Label]:
    return [new if label == old else label for label in labels]
