"""The names of classes. Nothing heavy is imported."""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias, TypeVar

from safecl.errors import SafeclError
from safecl.lines import HIDDEN, shown

Label: TypeAlias = str | int
L = TypeVar("L", bound=Label)
MAX_NAME_LENGTH = 200  # characters of the name of a class or session
UNSEEN = re.compile("[\u200c\u200d\ufe00-\ufe0f]")  # what ``HIDDEN`` allows in some places
MAX_CLASSES = 100_000  # of a model
# Cyrillic and Greek letters that few people could tell from Latin ones, and these.
LATIN = {
    **str.maketrans("АВЕКМНОРСТУХІЈЅԚԜҮаеорсухіјѕԁԛԝүһӏ", "ABEKMHOPCTYXIJSQWYaeopcyxijsdqwyhl"),
    **str.maketrans("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧϹονρϲϳ", "ABEZHIKMNOPTYXCovpcj"),
}


def check_name(label: Label, what: str = "class") -> None:
    """Refuse a name that a person could not read in a table, or use for a folder of a class; any
    alphabet will do.
    """
    if isinstance(label, int):
        if abs(label) >= 1 << 63:
            raise SafeclError("name.number.too-large")
        return
    if not label.strip():
        raise SafeclError("name.empty", what=what)
    if len(label) > MAX_NAME_LENGTH:
        raise SafeclError(
            "name.too-long", what=what, start=label[:40], length=len(label), most=MAX_NAME_LENGTH
        )
    if what == "class" and ("/" in label or "\\" in label):
        raise SafeclError("name.slash", label=label)
    if HIDDEN.search(label):
        raise SafeclError("name.hidden", what=what, label=shown(label))
    if label != label.strip():
        raise SafeclError("name.spaces", what=what, label=label)


def sorted_classes(labels: Iterable[Label]) -> tuple[Label, ...]:
    """Each class once: numbers by value, then words by spelling."""
    return tuple(sorted(set(labels), key=lambda label: (isinstance(label, str), label)))


def label_problems(
    labels: Iterable[Label],
    name: str,
    known: Iterable[Label] = (),
    *,
    what: Literal["class", "domain"] = "class",
    alphabets: bool = True,
) -> Iterator[SafeclError]:
    """An error for each name that is not text, or that a person would read as another one.

    ``known``: names that were there before these. ``alphabets``: see ``alike``.
    """
    before = dict.fromkeys(known)
    given = dict.fromkeys(labels)
    for label in given:
        if isinstance(label, str) and any("\ud800" <= letter <= "\udfff" for letter in label):
            yield SafeclError("name.of.not-utf", what=what, label=label, name=name)
        elif isinstance(label, str) and HIDDEN.search(label):
            yield SafeclError("name.of.hidden", what=what, label=shown(label), name=name)
    several = "classes" if what == "class" else "domains"
    for one, other, why in alike({**before, **given}, alphabets):
        if one in before and other not in before:
            yield SafeclError("name.like-known", what=what, other=other, one=one, why=why)
        else:
            yield SafeclError(
                "name.alike", several=several, one=one, other=other, name=name, why=why
            )


def alike(labels: Iterable[Label], alphabets: bool = True) -> Iterator[tuple[Label, Label, str]]:
    """(a name, one behind it that a person would read as the same, why); each name is there once.

    ``alphabets``: whether letters of others are read as the Latin ones that they look like.
    """
    seen: dict[str, Label] = {}
    for label in labels:
        ways = readings(label)[: 1 + alphabets]
        if (way := next((way for way in ways if way in seen), None)) is not None:
            yield seen[way], label, _likeness(seen[way], label)
        for way in ways:
            seen.setdefault(way, label)


def meant(label: Label, known: Iterable[L]) -> L | None:
    """The known name that a person reads as ``label``: itself, or one that looks like it."""
    every = list(known)
    ways = {*readings(label)}
    if label in every:
        return every[every.index(label)]
    return next((one for one in every if not ways.isdisjoint(readings(one))), None)


def readings(label: Label) -> tuple[str, ...]:
    """How a name is read: two that have one way in common are one name to a person.

    Case, unicode form, joiners, spaces, dashes and underscores are not told apart. It is read in
    its own letters first, and then in the Latin ones that these look like.
    """
    if isinstance(label, int):  # −1 is not 1
        return (str(label),)
    text = UNSEEN.sub("", unicodedata.normalize("NFKC", label))
    ways = (
        way.casefold().replace("_", " ").replace("-", " ") for way in (text, text.translate(LATIN))
    )
    return tuple(" ".join(way.split()) for way in ways)


def _likeness(one: Label, other: Label) -> str:
    if readings(one)[0] == readings(other)[0]:
        return "differ only in spelling"
    odd = next(letter for letter in f"{other}{one}" if ord(letter) in LATIN)
    return f"look the same, but one has a {unicodedata.name(odd).capitalize()}"
