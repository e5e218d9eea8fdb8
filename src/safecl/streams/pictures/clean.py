"""What is wrong with a user's pictures, found before anything is learned from them."""

import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

from safecl.errors import SafeclError
from safecl.lines import counted
from safecl.streams.labels import label_problems
from safecl.streams.pictures.files import File, FilePictures, printable
from safecl.streams.settings import Duplicates, Unreadable

Refuse: TypeAlias = Callable[[str], None]
NAMED = 5  # names that a sentence lists


def refuse(sentence: str) -> None:
    raise SafeclError(sentence)


def clean(
    train: FilePictures,
    test: FilePictures,
    name: str,
    unreadable: Unreadable | Literal["keep"] = "refuse",
    duplicates: Duplicates = "refuse",
    refuse: Refuse = refuse,
) -> tuple[list[int], list[int]]:
    """Positions of the training and test pictures to use.

    ``refuse`` is told, in a sentence, what must not be used; what is merely left out is a warning.
    ``unreadable="keep"``: nothing is looked at, for a check that reads every picture itself.
    """
    for sentence in label_problems([*train.labels, *test.labels], name):
        refuse(sentence)
    keep_train, keep_test = (readable(pictures, unreadable, refuse) for pictures in (train, test))
    for pictures, kept, part in ((train, keep_train, ""), (test, keep_test, " test")):
        if len(pictures) and not kept:
            raise SafeclError(
                f"No{part} picture of {name} can be read, the first of {len(pictures)} is {pictures.where(0)}."
            )
    shown = {train.labels[i] for i in keep_train}
    missing = sorted({str(test.labels[i]) for i in keep_test if test.labels[i] not in shown})
    if missing:
        refuse(f"The class {missing[0]!r} of {name} has test pictures but no training picture.")
    lost = sorted({str(label) for label in train.labels if label not in shown})
    if lost:
        warnings.warn(
            f"{counted(len(lost), 'class is', 'classes are')} left out of {name}, with no picture that can be read: "
            f"{naming(map(repr, lost))}.",
            stacklevel=3,
        )
    everything = [(train, i) for i in keep_train] + [(test, i) for i in keep_test]
    overlap: list[tuple[int, str]] = []
    for group in same_content([pictures.files[i] for pictures, i in everything]):
        members = [everything[g] for g in group]
        if duplicates == "refuse" and len({pictures.labels[i] for pictures, i in members}) > 1:
            (a, i), (b, j) = two_labels(members)
            refuse(
                f"The same picture is in two classes: {a.where(i)} ({a.labels[i]}) and {b.where(j)} ({b.labels[j]}); "
                "remove the wrong one, or set stream.duplicates=allow."
            )
        learned = [pictures.where(i) for pictures, i in members if pictures is train]
        if learned:
            overlap.extend((i, learned[0]) for pictures, i in members if pictures is test)
    if overlap:
        pairs = [f"{test.where(position)} = {twin}" for position, twin in overlap]
        warnings.warn(
            f"{counted(len(overlap), 'picture is', 'pictures are')} left out of the test of {name}, because the same "
            f"picture is in training: {naming(pairs)}.",
            stacklevel=3,
        )
    left_out = {position for position, _ in overlap}
    return keep_train, [i for i in keep_test if i not in left_out]


def two_labels(
    members: Sequence[tuple[FilePictures, int]],
) -> tuple[tuple[FilePictures, int], tuple[FilePictures, int]]:
    first = members[0]
    return first, next(other for other in members if other[0].labels[other[1]] != first[0].labels[first[1]])


def readable(pictures: FilePictures, unreadable: Unreadable | Literal["keep"], refuse: Refuse) -> list[int]:
    """Positions that can be used: files that cannot be opened are known, others are decoded only to be skipped."""
    bad: list[int] = []
    if unreadable == "keep":
        return list(range(len(pictures)))
    for i, file in enumerate(pictures.files):
        if file.problem:
            bad.append(i)
        elif unreadable == "skip":
            try:
                pictures.decode(i)
            except SafeclError:
                bad.append(i)
    if bad and unreadable == "refuse":
        refuse(f"{unreadable_files([(pictures.where(i), pictures.files[i].problem) for i in bad], skippable=True)}.")
    elif len(bad) < len(pictures) and bad:  # with none left, an error follows
        warnings.warn(
            f"{counted(len(bad), 'picture is', 'pictures are')} left out as unreadable: "
            f"{naming(pictures.where(i) for i in bad)}.",
            stacklevel=4,
        )
    gone = set(bad)
    return [i for i in range(len(pictures)) if i not in gone]


def unreadable_files(bad: Sequence[tuple[str, str]], skippable: bool) -> str:
    """A sentence on pictures that cannot be read, given as (where, why)."""
    them = "it" if len(bad) == 1 else "them"
    hint = f", or set stream.unreadable=skip to leave {them} out" if skippable else ""
    reasons = [(where, why.removeprefix("it is ").removeprefix("there is ")) for where, why in bad]
    names = naming(f"{where[:-1]}; {why})" if where.endswith(")") else f"{where} ({why})" for where, why in reasons)
    return f"{counted(len(bad), 'picture', 'pictures')} cannot be read: {names}; remove or replace {them}{hint}"


def naming(names: Iterable[str]) -> str:
    """The first few names, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - NAMED} more" if len(listed) > NAMED else ""
    return ", ".join(listed[:NAMED]) + more


def same_content(files: Sequence[File]) -> Iterator[list[int]]:
    """Groups of positions whose files hold the same bytes; only files of one size that can be opened are read."""
    by_size: dict[int, list[int]] = {}
    for i, file in enumerate(files):
        if not file.problem:
            by_size.setdefault(file.size, []).append(i)
    for group in by_size.values():
        if len(group) > 1:
            for ends in grouped(group, files, whole=False):
                yield from grouped(ends, files, whole=True)


def grouped(positions: Sequence[int], files: Sequence[File], *, whole: bool) -> Iterator[list[int]]:
    found: dict[bytes, list[int]] = {}
    for i in positions:
        found.setdefault(digest(files[i], whole=whole), []).append(i)
    return (group for group in found.values() if len(group) > 1)


def digest(file: File, *, whole: bool) -> bytes:
    """A digest of the file, or of its last 4 KiB (headers are alike, ends are not)."""
    try:
        with open(file.path, "rb") as stream:
            if not whole:
                stream.seek(max(0, file.size - 4096))
            return hashlib.blake2b(stream.read(), digest_size=16).digest()
    except OSError as error:
        raise SafeclError(f"The picture {printable(file.path)} cannot be read: {error.strerror or error}.") from None
