"""What is wrong with somebody's pictures, found before they are learned: never a silent wrong label."""

import hashlib
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Sequence

from safecl.errors import SafeclError, unknown
from safecl.streams.files import File, FilePictures
from safecl.streams.images import Label


def clean(
    train: FilePictures, test: FilePictures, name: str, unreadable: str = "refuse", duplicates: str = "refuse"
) -> tuple[list[int], list[int]]:
    """Positions of the training and test pictures to use; raises or warns, each in one sentence, about the rest."""
    if unreadable not in ("refuse", "skip"):
        raise unknown("way with unreadable pictures", unreadable, ("refuse", "skip"))
    if duplicates not in ("refuse", "allow"):
        raise unknown("way with duplicates", duplicates, ("refuse", "allow"))
    check_spelling([*train.labels, *test.labels], name)
    keep_train, keep_test = (readable(pictures, unreadable) for pictures in (train, test))
    missing = sorted({str(test.labels[i]) for i in keep_test} - {str(train.labels[i]) for i in keep_train})
    if missing:
        raise SafeclError(f"The class {missing[0]!r} of {name} has test pictures but no training picture.")
    everything = [(train, i) for i in keep_train] + [(test, i) for i in keep_test]
    overlap: list[tuple[int, str]] = []
    for group in same_content([pictures.files[i] for pictures, i in everything]):
        members = [everything[g] for g in group]
        if duplicates == "refuse" and len({pictures.labels[i] for pictures, i in members}) > 1:
            (a, i), (b, j) = two_labels(members)
            raise SafeclError(
                f"The same picture is in two classes: {a.where(i)} ({a.labels[i]}) and {b.where(j)} ({b.labels[j]}); "
                "remove the wrong one, or allow duplicates."
            )
        learned = [pictures.where(i) for pictures, i in members if pictures is train]
        if learned:
            overlap.extend((i, learned[0]) for pictures, i in members if pictures is test)
    if overlap:
        position, twin = overlap[0]
        warnings.warn(
            f"{len(overlap)} test picture(s) of {name} are also training pictures and are left out of the test, the "
            f"first is {test.where(position)}, the same as {twin}.",
            stacklevel=3,
        )
    left_out = {position for position, _ in overlap}
    return keep_train, [i for i in keep_test if i not in left_out]


def two_labels(
    members: Sequence[tuple[FilePictures, int]],
) -> tuple[tuple[FilePictures, int], tuple[FilePictures, int]]:
    first = members[0]
    return first, next(other for other in members if other[0].labels[other[1]] != first[0].labels[first[1]])


def readable(pictures: FilePictures, unreadable: str) -> list[int]:
    """Positions that can be used: empty files are seen at once, the rest only when asked to skip what is broken."""
    bad: list[int] = []
    for i, file in enumerate(pictures.files):
        if file.size == 0:
            bad.append(i)
        elif unreadable == "skip":
            try:
                pictures.decode(i)
            except SafeclError:
                bad.append(i)
    if bad and unreadable == "refuse":
        raise SafeclError(
            f"The picture {pictures.where(bad[0])} is an empty file, one of {len(bad)}; remove them or fetch them "
            "again, or pass unreadable=skip."
        )
    if bad:
        warnings.warn(
            f"{len(bad)} picture(s) cannot be read and are left out, the first is {pictures.where(bad[0])}.",
            stacklevel=4,
        )
    gone = set(bad)
    return [i for i in range(len(pictures)) if i not in gone]


def check_spelling(labels: Iterable[Label], name: str) -> None:
    """Refuse two classes that a person would read as one: other case, other unicode form, other spaces."""
    seen: dict[str, Label] = {}
    for label in dict.fromkeys(labels):
        key = normalised(label)
        if key in seen:
            raise SafeclError(
                f"The classes {seen[key]!r} and {label!r} of {name} differ only in spelling; give them one name, or "
                "two that differ."
            )
        seen[key] = label


def normalised(label: Label) -> str:
    text = unicodedata.normalize("NFKC", str(label)).casefold()
    return " ".join(text.replace("_", " ").replace("-", " ").split())


def same_content(files: Sequence[File]) -> Iterator[list[int]]:
    """Groups of positions whose files hold the same bytes; only files of one size are opened."""
    by_size: dict[int, list[int]] = {}
    for i, file in enumerate(files):
        by_size.setdefault(file.size, []).append(i)
    for group in by_size.values():
        if len(group) > 1:
            for ends in grouped(group, files, whole=False):
                yield from grouped(ends, files, whole=True)


def grouped(positions: Sequence[int], files: Sequence[File], *, whole: bool) -> Iterator[list[int]]:
    found: dict[bytes, list[int]] = {}
    for i in positions:
        found.setdefault(fingerprint(files[i], whole=whole), []).append(i)
    return (group for group in found.values() if len(group) > 1)


def fingerprint(file: File, *, whole: bool) -> bytes:
    """A digest of the file, or of its last 4 KiB (headers are alike, ends are not)."""
    try:
        with open(file.path, "rb") as stream:
            if not whole:
                stream.seek(max(0, file.size - 4096))
            return hashlib.blake2b(stream.read(), digest_size=16).digest()
    except OSError as error:
        raise SafeclError(f"The picture {file.path} cannot be read: {error.strerror or error}.") from None
