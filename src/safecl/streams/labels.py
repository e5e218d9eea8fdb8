"""The names of classes. Nothing heavy is imported."""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from safecl.errors import SafeclError
from safecl.lines import HIDDEN, shown

Label: TypeAlias = str | int
MAX_NAME_LENGTH = 200  # characters of the name of a class or session
UNSEEN = re.compile("[\u200c\u200d\ufe00-\ufe0f]")  # what ``HIDDEN`` allows in some places
MAX_CLASSES = 100_000  # of a model


def check_name(label: Label, what: str = "class") -> None:
    """Refuse a name that a person could not read in a table, or use for a folder of a class; any alphabet will do."""
    if isinstance(label, int):
        if abs(label) >= 1 << 63:
            raise SafeclError("A class is too large a number; use one of 64 bits, or a word.")
        return
    if not label.strip():
        raise SafeclError(f"A {what} needs a name; an empty one was given.")
    if len(label) > MAX_NAME_LENGTH:
        raise SafeclError(f"The {what} name {label[:40]}… has {len(label)} characters; use {MAX_NAME_LENGTH} at most.")
    if what == "class" and ("/" in label or "\\" in label):
        raise SafeclError(f"The class name {label!r} holds a slash; use another name.")
    if HIDDEN.search(label):
        found = f"'{shown(label)}' holds a control, bidirectional or zero-width character"
        raise SafeclError(f"The {what} name {found}; use another name.")
    if label != label.strip():
        raise SafeclError(f"The {what} name {label!r} begins or ends with a space; use another name.")


def sorted_classes(labels: Iterable[Label]) -> tuple[Label, ...]:
    """Each class once: numbers by value, then words by spelling."""
    return tuple(sorted(set(labels), key=lambda label: (isinstance(label, str), label)))


def label_problems(labels: Iterable[Label], name: str) -> Iterator[str]:
    """A sentence on each class that is not text, or that a person would read as another one.

    Two classes are read as one if they differ in case, unicode form, joiners, spaces, dashes or underscores only.
    """
    seen: dict[str, Label] = {}
    for label in dict.fromkeys(labels):
        if isinstance(label, str) and any("\ud800" <= letter <= "\udfff" for letter in label):
            yield f"The name of the class {label!r} of {name} is not valid UTF-8; rename it."
        elif isinstance(label, str) and HIDDEN.search(label):
            found = "a control, bidirectional or zero-width character"
            yield f"The class '{shown(label)}' of {name} holds {found}; rename it."
        key = normalised(label)
        if key in seen:
            yield f"The classes {seen[key]!r} and {label!r} of {name} differ only in spelling; use one name for both."
        seen[key] = label


def normalised(label: Label) -> str:
    if isinstance(label, int):  # −1 is not 1
        return str(label)
    text = UNSEEN.sub("", unicodedata.normalize("NFKC", str(label)).casefold())
    return " ".join(text.replace("_", " ").replace("-", " ").split())
