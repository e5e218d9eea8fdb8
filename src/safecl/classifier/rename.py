"""Another name for a class. Names stand in the header alone, so no torch is needed."""

import copy
import re

from safecl.classifier.history import step
from safecl.classifier.store import Header
from safecl.errors import SafeclError, unknown
from safecl.streams.labels import Label, check_name, label_problems


def find(header: Header, label: Label) -> Label:
    """The class that a word of the command line means: itself, or the number it spells."""
    classes = header["classes"]
    if label in classes:
        return label
    match: Label | None = next((known for known in classes if str(known) == str(label)), None)
    if match is None:
        raise unknown("class", str(label), map(str, classes))
    return match


def as_label(header: Header, old: Label, word: str) -> Label:
    """What a word of the command line means as another name for a class: a number, where the class is one."""
    number = isinstance(find(header, old), int) and re.fullmatch("-?[0-9]+", word)
    return int(word) if number else word


def renamed(header: Header, old: Label, new: Label) -> Header:
    """The header with another name for a class, also in its past."""
    old = find(header, old)
    if old == new:
        raise SafeclError(f"The class is called {old!r} already.")
    check_name(new)
    if new in header["classes"]:
        raise SafeclError(f"There is a class {new!r} already; two classes cannot become one.")
    for sentence in label_problems([*(label for label in header["classes"] if label != old), new], "the model"):
        raise SafeclError(sentence)
    found = copy.deepcopy(header)
    found["classes"] = _changed(found["classes"], old, new)
    for entry in found["history"]:
        entry["new"] = _changed(entry["new"], old, new)
        entry["classes"] = [[*_changed([label], old, new), count] for label, count in entry["classes"]]
        if entry.get("to") == old:
            entry["to"] = new
        entry["confused"] = [[*_changed([a, b], old, new), n] for a, b, n in entry.get("confused", [])]
    found["history"].append(step("rename", f"{old} → {new}", to=new))
    return found


def _changed(labels: list[Label], old: Label, new: Label) -> list[Label]:
    return [new if label == old else label for label in labels]
