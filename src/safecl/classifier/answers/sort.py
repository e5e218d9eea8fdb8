"""Put pictures into folders by answer. No file is overwritten, and a picture that is there already
is left alone.
"""

import contextlib
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Literal, TypeAlias

from safecl.errors import SafeclError
from safecl.report.templates import make_folder
from safecl.runtime.answer import Answer
from safecl.streams.labels import Label, readings
from safecl.streams.pictures.find import File, Unread, printable, scan

How: TypeAlias = Literal["copy", "link", "move"]
UNKNOWN = "unknown"  # the folder of pictures that look like no class
LONGEST_NAME = 100  # bytes of a folder's name, of 255 that most file systems allow
FORBIDDEN = frozenset('/\\<>:"|?*')  # in names, by one file system or another
DEVICES = {
    "CON",
    "PRN",
    "AUX",
    "NUL",
    *(f"{port}{i}" for port in ("COM", "LPT") for i in range(1, 10)),
}


@dataclass
class Sorting:
    """The folder ``top`` while pictures are put into it; ``classes`` in the order in which they
    were learned.
    """

    top: Path
    classes: Sequence[Label]
    how: How = "copy"
    put: Counter[str] = field(default_factory=Counter)  # pictures by folder
    there: int = 0  # pictures that were left alone

    def __post_init__(self) -> None:
        inside = self.top.iterdir() if self.top.is_dir() else ()
        there = [path.name for path in inside if path.is_dir()]
        self._folders = folder_names(self.classes, there)
        self._digests: dict[
            int, set[bytes]
        ] = {}  # by size, of the files below ``top`` that were read
        self._unread: dict[
            int, list[File]
        ] = {}  # by size, those that were not: most sizes are never asked for
        for found in scan(self.top, Unread()) if self.top.is_dir() else ():
            self._unread.setdefault(found.file.size, []).append(found.file)

    def new(self, files: Iterator[File]) -> Iterator[File]:
        """Those of the ``files`` that are not below ``top``, whatever they are called there; the
        others are counted.
        """
        for file in files:
            if self._holds(file):
                self.there += 1
            else:
                yield file

    def take(self, file: File, answer: Answer) -> None:
        """Put a picture into the folder of its answer."""
        folder = UNKNOWN if answer.unknown else self._folders[answer.label]
        put(file.path, self.top / folder, self.how)
        self.put[folder] += 1

    def _holds(self, file: File) -> bool:
        known = self._digests.setdefault(file.size, set())
        for other in self._unread.pop(file.size, []):
            with contextlib.suppress(SafeclError):  # what cannot be read is another picture
                known.add(other.digest())
        return bool(known) and not file.problem and file.digest() in known


def files_outside(files: Iterator[File], folder: Path, top: Path) -> Iterator[File]:
    """The pictures of ``folder`` that do not lie in ``top``, which may be a folder in it but not
    around it.
    """
    inside = folder.resolve()
    outside = top.resolve()
    if inside == outside or inside.is_relative_to(outside):
        raise SafeclError("sort.out.around", out=top, folder=folder)
    own = (
        os.path.join(folder, outside.relative_to(inside), "")
        if outside.is_relative_to(inside)
        else None
    )
    return (file for file in files if own is None or not file.path.startswith(own))


def folder_names(classes: Sequence[Label], there: Sequence[str] = ()) -> dict[Label, str]:
    """A folder for each class, in the order in which they were learned.

    Two that a file system or a person may mix up differ. ``there``: folders that exist, of which
    one that is read as the name of a class is its own.
    """
    own = {way: name for name in there for way in readings(name)}
    taken = {*readings(UNKNOWN)}
    found = dict[Label, str]()
    for label in classes:
        every = numbered(safe_name(str(label)))
        name, ways = next((one, ways) for one in every if taken.isdisjoint(ways := readings(one)))
        taken.update(ways)
        found[label] = (
            name if name in there else next((own[way] for way in ways if way in own), name)
        )
    return found


def safe_name(text: str) -> str:
    """``text`` as the name of a file: no path, not hidden, nothing that a file system refuses."""
    kept = "".join(
        "_" if sign in FORBIDDEN or not sign.isprintable() else sign for sign in text
    ).strip(". ")
    kept = kept.encode()[:LONGEST_NAME].decode(errors="ignore").rstrip(". ")
    first, dot, rest = kept.partition(".")  # of Windows' devices only what stands before it counts
    device = not kept or first.strip().upper() in DEVICES
    return f"{first}_{dot}{rest}" if device else kept


def new_folder(path: Path) -> Path:
    """Make a folder, which must be new or empty: what is written there does not mix with other
    files.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise SafeclError("sort.folder.not-empty", path=printable(path))
    return make_folder(path)


def put(source: str, folder: Path, how: How, name: str | None = None) -> str:
    """Copy, link or move a file into ``folder`` under its own name, or a ``name``, numbered where
    that is taken.
    """
    stem, ending = os.path.splitext(name or os.path.basename(source))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        places = (os.path.join(folder, one + ending) for one in numbered(stem))
        target = next(place for place in places if not os.path.lexists(place))
        _put(source, target, how)
        if how == "move" and os.path.lexists(source):
            os.unlink(source)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SafeclError(
            "sort.not-put", picture=printable(source), folder=printable(folder), reason=reason
        ) from error
    return target


def _put(source: str, target: str, how: How) -> None:
    """Make ``target``, whole or not at all."""
    folder = os.path.dirname(target)
    if how == "link" or (how == "move" and os.path.islink(source)):
        os.symlink(os.path.realpath(source), target)
    elif how == "move" and os.stat(source).st_dev == os.stat(folder).st_dev:
        os.rename(source, target)
    else:
        aside = os.path.join(folder, f".{os.getpid()}.part")
        try:
            shutil.copy2(source, aside)
            os.rename(aside, target)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(aside)


def numbered(name: str) -> Iterator[str]:
    """name, name-2, name-3, …"""
    return (name if i == 1 else f"{name}-{i}" for i in count(1))
