"""Another name for a class. Names stand in the header alone, so no torch is needed."""

import copy
from typing import Any

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


def renamed(header: Header, old: Label, new: Label) -> Header:
    """The header with another name for a class, also in its past."""
    old = find(header, old)
    if old == new:
        raise SafeclError(f"The class is called {old!r} already.")
    check_name(new)
    for sentence in label_problems([*(label for label in header["classes"] if label != old), new], "the model"):
        raise SafeclError(sentence)

    def change(labels: list[Any]) -> list[Any]:
        return [new if label == old else label for label in labels]

    found = copy.deepcopy(header)
    found["classes"] = change(found["classes"])
    for entry in found["history"]:
        for key in ("new", "classes", "confused"):
            entry[key] = [change(item) if isinstance(item, list) else change([item])[0] for item in entry.get(key, [])]
    for undo in found.get("undo", []):
        undo["header"]["classes"] = change(undo["header"]["classes"])
    return found
