"""Picture files on disk: found, named, and read as they were when they were found. Nothing heavy is
imported.
"""

import contextlib
import errno
import hashlib
import os
import stat
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from safecl.errors import SafeclError
from safecl.lines import counted, naming, shown, warn_omitted
from safecl.streams.pictures.decode import UnreadableError
from safecl.streams.pictures.kinds import FURTHER, UNREAD, hidden, readable, unread_because
from safecl.streams.pictures.shards import SHARD, Shard, contents

TRAIN = ("train", "training")
TEST = ("test", "testing", "val", "valid", "validation")  # the first that exists is the test split
Only: TypeAlias = Literal["train", "test"]
FOR_OTHERS: dict[Only | None, str] = {  # what reads a folder that is left out, by what is read
    None: "stream.held_out takes validation pictures from training",
    "train": "safecl eval measures on another folder",
    "test": "give another folder to measure on it",
}


@dataclass(frozen=True, slots=True)
class File:
    """A file as it was when its folder was listed; one that has changed since is refused.

    ``name``: the last two parts of its path below the data folder, which stay the same when that
    folder is moved. ``problem``: why it cannot be opened, if it cannot. ``shard``: the tar file
    that holds it from ``offset`` on.
    """

    path: str
    name: str
    size: int
    modified: int
    problem: str = ""
    shard: "File | None" = None
    offset: int = 0

    @classmethod
    def at(cls, path: str | Path, name: str | None = None) -> "File":
        """The file at ``path``, whether it can be opened or not."""
        path = os.fspath(path)
        name = "/".join(Path(path).parts[-2:]) if name is None else name
        try:
            found = os.stat(path)
        except OSError as error:
            return cls(path, name, -1, 0, problem(path, error))
        except ValueError:  # a NUL, or a letter that this locale's file names do not have
            return cls(path, name, -1, 0, "not a possible file name")
        if not stat.S_ISREG(found.st_mode):
            return cls(path, name, -1, 0, "not a plain file")
        return cls(
            path, name, found.st_size, found.st_mtime_ns, "" if found.st_size else "an empty file"
        )

    def read(self, where: str | None = None) -> bytes:
        """Its bytes, if it is still the file that was found; ``where``: for messages."""
        where = printable(self.path) if where is None else where
        if self.problem:
            raise UnreadableError(where, self.problem)
        whole = self.shard or self
        try:
            if self.shard is None:
                with open(self.path, "rb") as stream:
                    now = os.fstat(stream.fileno())
                    data = stream.read()
            else:
                now = os.stat(whole.path)
                tar = opened(whole, now.st_ino)
                data = tar.at(self.offset, self.size)
            if (now.st_size, now.st_mtime_ns) == (whole.size, whole.modified) and len(
                data
            ) == self.size:
                return data
        except FileNotFoundError:
            pass
        except OSError as error:
            raise UnreadableError(where, problem(self.path, error)) from None
        raise changed(where)

    def digest(self) -> bytes:
        """16 bytes that identify its content."""
        return digest_of(self.read())


def digest_of(data: bytes) -> bytes:
    """16 bytes that identify the content of a file."""
    return hashlib.blake2b(data, digest_size=16).digest()


def changed(where: str) -> SafeclError:
    return SafeclError("picture.changed", where=where)


@lru_cache(128)  # files that a process holds open
def opened(file: File, inode: int) -> Shard:
    """The shard at the path of ``file``; ``inode``: tells one from another that was put in its
    place with its size and time.
    """
    return Shard(file.path)


def mark_of(digest: bytes) -> int:
    """64 bits of a digest of a picture, by which a model knows it again."""
    return int.from_bytes(digest[:8], "little", signed=True)


def problem(path: str, error: OSError) -> str:
    """Why a file cannot be opened."""
    if error.errno == errno.ELOOP:
        return "a link to itself"
    if error.errno == errno.ENOENT:
        return "a link to nothing" if os.path.islink(path) else "no such file"
    return (error.strerror or str(error)).lower()


class Found(NamedTuple):
    """A picture file and the folders between the top and itself."""

    folders: tuple[str, ...]
    file: File


@dataclass
class Unread:
    """Files beside pictures that are not read, by the reason, each of which is said once."""

    kinds: list[str] = field(default_factory=list)
    shards: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    def add(self, path: str) -> None:
        ending = os.path.splitext(path)[1].lower()
        known = ending in FURTHER or ending in UNREAD
        found = self.kinds if known else self.shards if ending == SHARD else self.others
        found.append(printable(path))

    def say(self) -> None:
        endings = {os.path.splitext(path)[1].lower() for path in self.kinds}
        readers = sorted(unread_because(FURTHER[ending]) for ending in endings & FURTHER.keys())
        hint = f" ({'; '.join(dict.fromkeys(readers))})" if readers else ""
        warn_omitted(
            self.kinds, "picture", f"of a kind that is not read, unlike JPEG and PNG{hint}"
        )
        warn_omitted(self.shards, "shard", "beside folders or pictures")
        warn_omitted(self.others, "file", "without the ending of a picture")


def picture_files(path: str | Path) -> Iterator[File]:
    """Every picture below a folder in the order of sorted names; ``path`` itself if it is no
    folder.
    """
    unread = Unread()
    folder = os.path.isdir(path)
    below = (entry.file for entry in scan(Path(path), unread))
    entries = below if folder else iter([File.at(path)])
    first = next(entries, None)
    if first is None:
        unread.say()
        raise SafeclError("pictures.none", path=printable(path))
    yield first
    yield from entries
    unread.say()


def scan(top: Path, unread: Unread) -> Iterator[Found]:
    """Every picture file below ``top``, in the order of sorted names; links are followed, but not
    into a cycle.
    """
    return _scan(os.fspath(top), (), (), unread)


def _scan(
    path: str, folders: tuple[str, ...], above: tuple[tuple[int, int], ...], unread: Unread
) -> Iterator[Found]:
    try:
        here = os.stat(path)
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
    except OSError as error:
        raise SafeclError(
            "pictures.folder.unreadable", path=printable(path), reason=error.strerror or error
        ) from None
    identity = (here.st_dev, here.st_ino)
    if identity in above:
        return
    for entry in entries:
        if hidden(entry.name):
            continue
        if os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir():
            # a link to itself is no folder
            yield from _scan(
                entry.path, (*folders, as_text(entry.name)), (*above, identity), unread
            )
        elif readable(os.path.splitext(entry.name)[1].lower()):
            yield Found(
                folders, File.at(entry.path, "/".join((*folders[-1:], as_text(entry.name))))
            )
        elif os.path.isfile(entry.path):
            unread.add(entry.path)


class ClassFolders(NamedTuple):
    """The pictures below a folder of class folders. ``depth``: of the class among their folders, 1
    below domains.
    """

    train_at: Path
    test_at: Path | None
    train: list[Found]
    test: list[Found]
    depth: int


def class_folders(top: Path, protocol: str | None = None, only: Only | None = None) -> ClassFolders:
    """What is below ``top``, or a sentence on what is not as it should be; nothing is opened.

    ``only``: one half of a folder that is split, in place of the training pictures.
    """
    if not top.is_dir() and not (top.is_file() and top.suffix.lower() == SHARD):
        raise SafeclError("pictures.folder.missing", folder=printable(top))
    train_at, test_at, aside = split_folders(top) if top.is_dir() else Split(top, None, [])
    if only is not None and test_at is not None:
        half, other = (train_at, test_at) if only == "train" else (test_at, train_at)
        train_at = half
        test_at = None
        aside = [other, *aside]
    warn_aside(aside, top, [place for place in (train_at, test_at) if place], only)
    unread = Unread()
    train = found_in(train_at, unread)
    test = found_in(test_at, unread) if test_at else []
    unread.say()
    here = printable(train_at)
    if not train:
        raise SafeclError("pictures.folder.no-classes", folder=here)
    if test_at and not test:
        raise SafeclError("pictures.folder.no-test", folder=printable(test_at))
    depth = int(protocol in ("domain", "mixed")) if protocol else class_depth(train, here, only)
    for found in train + test:
        split_inside = (
            found.file.shard and found.folders[1:] and found.folders[0].lower() in TRAIN + TEST
        )
        if split_inside or len(found.folders) <= depth:
            wanted = "DOMAIN/CLASS/PICTURE" if depth else "CLASS/PICTURE"
            path = printable(found.file.path)
            raise SafeclError("pictures.folder.stray", path=path, folder=here, wanted=wanted)
    return ClassFolders(train_at, test_at, train, test, depth)


def found_in(place: Path, unread: Unread) -> list[Found]:
    """The pictures below a folder, or in the shards of one without folders and pictures, sorted as
    files would be.
    """
    entries = (
        [place]
        if place.is_file()
        else [entry for entry in place.glob("*") if not hidden(entry.name)]
    )
    shards = sorted(
        entry for entry in entries if entry.suffix.lower() == SHARD and not entry.is_dir()
    )
    if not shards or any(entry.is_dir() or readable(entry.suffix.lower()) for entry in entries):
        return list(scan(place, unread))
    for entry in entries:
        if entry not in shards:
            unread.add(os.fspath(entry))
    found: dict[tuple[str, ...], Found] = {}
    for path in shards:
        whole = File.at(path)
        pictures, others = contents(path)
        for name in others:
            unread.add(f"{path}/{name}")
        for folders, info in pictures:
            last = info.name.rpartition("/")[2]
            problem = "" if info.size else "an empty file"
            name = "/".join((*folders[-1:], last))
            file = File(
                f"{path}/{info.name}",
                name,
                info.size,
                whole.modified,
                problem,
                whole,
                info.offset_data,
            )
            if (*folders, last) in found:
                raise SafeclError("pictures.shards.twice", place=printable(place), name=name)
            found[*folders, last] = Found(folders, file)
    return [found[parts] for parts in sorted(found)]


class Split(NamedTuple):
    """The folders of a split, and what else is beside them."""

    train: Path
    test: Path | None
    aside: list[Path]


def split_folders(top: Path) -> Split:
    """The training folder and, where there is one, the test folder; ``top`` if it is not split."""
    entries = sorted(entry for entry in top.iterdir() if not hidden(entry.name))
    folders = [entry for entry in entries if entry.is_dir()]
    train, test = (
        next((folder for name in names for folder in folders if folder.name.lower() == name), None)
        for names in (TRAIN, TEST)
    )
    # Among other folders, one that holds no folders is a class: trains are photographed, too.
    alone = all(folder.name.lower() in TRAIN + TEST for folder in folders)
    if train is None or not (
        alone or any(entry.is_dir() or entry.suffix == SHARD for entry in train.iterdir())
    ):
        return Split(top, None, [])
    return Split(train, test, [entry for entry in entries if entry not in (train, test)])


def warn_aside(aside: Sequence[Path], top: Path, read: Sequence[Path], only: Only | None) -> None:
    """Say what holds pictures beside the folders that are ``read``."""
    if named := [told for path in aside if (told := told_aside(path))]:
        are = "is" if len(named) == 1 else "are"
        places = " and ".join(f"{printable(path.name)}/" for path in read)
        told = f"{naming(named)} in {printable(top)} {are} left out: only {places}"
        told += " is read" if len(read) == 1 else " are read"
        warnings.warn(f"{told}; {FOR_OTHERS[only]}.", stacklevel=3)


def told_aside(path: Path) -> str:
    """A file or folder and how much is in it; empty if no picture is."""
    name = printable(path.name)
    unread = Unread()
    count = 0
    if not path.is_dir():
        ending = path.suffix.lower()
        return name if readable(ending) or ending == SHARD else ""
    with contextlib.suppress(SafeclError):  # it cannot be listed, and is not read in any case
        count = sum(1 for _ in scan(path, unread))
    inside = [(count, "picture"), (len(unread.shards), "shard")]
    told = ", ".join(counted(number, word) for number, word in inside if number)
    return told and f"{name}/ ({told})"


def class_depth(found: Sequence[Found], here: str, only: Only | None) -> int:
    """How deep the class is among the folders of a picture: 1 below domains, else 0.

    A level where all folders have one name tells nothing apart: it is no class. Domains show the
    same classes again. Where a layout may be meant otherwise, it is said how it is read.
    """
    ways = {f.folders for f in found}
    if any(len(way) < 2 for way in ways):
        return 0
    outer, inner = (sorted({shown(way[level]) for way in ways}) for level in (0, 1))
    two_deep = all(len(way) == 2 for way in ways)
    told = ""
    depth = 0
    if len(outer) == 1 and len(inner) > 1:
        told = f"one class, {outer[0]!r}; if its folders ({naming(inner)}) are classes"
        told += f", give {here}/{outer[0]}"
    elif two_deep and len(inner) == 1 and len(outer) > 1:
        way = "set stream.protocol=domain" if only is None else "give these folders one by one"
        told = f"the classes {naming(outer)}; if {inner[0]!r}, the one folder in each, is a class"
        told += f", {way}"
    elif two_deep and len(inner) < len(ways):
        depth = 1
        if only is not None:  # a run says it in any case
            told = f"the domains {naming(outer)} with the classes {naming(inner)}"
    if told:
        warnings.warn(f"{here} is read as {told}.", stacklevel=3)
    return depth


def as_text(name: str) -> str:
    """The name of a file or folder read as UTF-8, whatever the locale; other bytes are surrogates,
    as in Python.
    """
    try:
        return os.fsencode(name).decode(errors="surrogateescape")
    except UnicodeEncodeError:  # it is no name of a file here, but text already
        return name


def printable(path: str | Path) -> str:
    """A path for messages: bytes that are not UTF-8, and what is hidden, are shown as escapes."""
    return shown(as_text(os.fspath(path)))
