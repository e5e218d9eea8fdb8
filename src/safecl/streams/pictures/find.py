"""Picture files on disk: found, named, and read as they were when they were found. Nothing heavy is imported."""

import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from safecl.errors import SafeclError
from safecl.lines import shown, warn_omitted
from safecl.streams.pictures.decode import FURTHER, UNREAD, UnreadableError, hidden, readable, unread_because
from safecl.streams.pictures.shards import SHARD, Shard, pictures_of

TRAIN = ("train", "training")
TEST = ("test", "testing", "val", "valid", "validation")  # the first that exists is the test split


@dataclass(frozen=True, slots=True)
class File:
    """A file as it was when its folder was listed; one that has changed since is refused.

    ``name``: the last two parts of its path below the data folder, which stay the same when that folder is moved.
    ``problem``: why it cannot be opened, if it cannot. ``shard``: the tar file that holds it from ``offset`` on.
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
        return cls(path, name, found.st_size, found.st_mtime_ns, "" if found.st_size else "an empty file")

    def read(self, last: int | None = None, where: str | None = None) -> bytes:
        """Its bytes, or the ``last`` ones, if it is still the file that was found; ``where``: for messages."""
        where = printable(self.path) if where is None else where
        if self.problem:
            raise UnreadableError(where, self.problem)
        count = self.size if last is None else min(self.size, last)
        whole = self.shard or self
        try:
            if self.shard is None:
                with open(self.path, "rb") as stream:
                    now = os.fstat(stream.fileno())
                    stream.seek(self.size - count)
                    data = stream.read()
            else:
                now, tar = os.stat(whole.path), opened(whole)
                data = os.pread(tar.fileno(), count, self.offset + self.size - count)
            if (now.st_size, now.st_mtime_ns) == (whole.size, whole.modified) and len(data) == count:
                return data
        except FileNotFoundError:
            pass
        except OSError as error:
            raise UnreadableError(where, problem(self.path, error)) from None
        raise SafeclError(f"The picture {where} has changed or gone during the run; leave the data alone meanwhile.")

    def digest(self, where: str | None = None) -> bytes:
        """16 bytes that identify its content."""
        return hashlib.blake2b(self.read(where=where), digest_size=16).digest()


@lru_cache(128)  # files that a process holds open
def opened(file: File) -> Shard:
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


def picture_files(path: str | Path) -> Iterator[File]:
    """Every picture below a folder in the order of sorted names; ``path`` itself if it is no folder."""
    entries = (entry.file for entry in scan(Path(path))) if os.path.isdir(path) else iter([File.at(path)])
    first = next(entries, None)
    if first is None:
        raise SafeclError(f"There is no picture in {printable(path)}.")
    yield first
    yield from entries


def scan(top: Path) -> Iterator[Found]:
    """Every picture file below ``top``, in the order of sorted names; links are followed, but not into a cycle."""
    unread: list[str] = []
    yield from _scan(os.fspath(top), (), (), unread)
    kinds = {FURTHER[ending] for ending in {os.path.splitext(path)[1].lower() for path in unread} if ending in FURTHER}
    hint = f" ({'; '.join(unread_because(kind) for kind in sorted(kinds))})" if kinds else ""
    why = f"of a kind that is not read, unlike JPEG and PNG{hint}"
    warn_omitted([printable(path) for path in unread], "picture", why)


def _scan(
    path: str, folders: tuple[str, ...], above: tuple[tuple[int, int], ...], unread: list[str]
) -> Iterator[Found]:
    try:
        here = os.stat(path)
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
    except OSError as error:
        raise SafeclError(f"The folder {printable(path)} cannot be read: {error.strerror or error}.") from None
    identity = (here.st_dev, here.st_ino)
    if identity in above:
        return
    for entry in entries:
        if hidden(entry.name):
            continue
        if os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir():  # a link to itself is no folder
            yield from _scan(entry.path, (*folders, as_text(entry.name)), (*above, identity), unread)
        elif readable(ending := os.path.splitext(entry.name)[1].lower()):
            yield Found(folders, File.at(entry.path, "/".join((*folders[-1:], as_text(entry.name)))))
        elif ending in FURTHER or ending in UNREAD:
            unread.append(entry.path)


class ClassFolders(NamedTuple):
    """The pictures below a folder of class folders. ``depth``: of the class among their folders, 1 below domains."""

    train_at: Path
    test_at: Path | None
    train: list[Found]
    test: list[Found]
    depth: int


def class_folders(top: Path, protocol: str | None = None) -> ClassFolders:
    """What is below ``top``, or a sentence on what is not as it should be; nothing is opened."""
    if not top.is_dir() and not (top.is_file() and top.suffix.lower() == SHARD):
        raise SafeclError(f"There is no folder {printable(top)}; give the folder that holds the class folders.")
    train_at, test_at = split_folders(top) if top.is_dir() else (top, None)
    train = found_in(train_at)
    test = found_in(test_at) if test_at else []
    here = printable(train_at)
    if not train:
        raise SafeclError(f"There is no picture in a class folder of {here}; expected {here}/CLASS/PICTURE.")
    if test_at and not test:
        raise SafeclError(f"There is no picture in a class folder of {printable(test_at)}; fill it or remove it.")
    by_domain = protocol in ("domain", "mixed") or (protocol is None and looks_like_domains(train))
    for found in train + test:
        split_inside = found.file.shard and found.folders[1:] and found.folders[0].lower() in TRAIN + TEST
        if split_inside or len(found.folders) <= by_domain:
            wanted = "DOMAIN/CLASS/PICTURE" if by_domain else "CLASS/PICTURE"
            path = printable(found.file.path)
            raise SafeclError(f"The picture {path} is in no class folder; expected {here}/{wanted}.")
    return ClassFolders(train_at, test_at, train, test, int(by_domain))


def found_in(place: Path) -> list[Found]:
    """The pictures below a folder, or in the shards of one without folders and pictures, sorted as files would be."""
    entries = [place] if place.is_file() else [entry for entry in place.glob("*") if not hidden(entry.name)]
    shards = sorted(entry for entry in entries if entry.suffix.lower() == SHARD and not entry.is_dir())
    if not shards or any(entry.is_dir() or readable(entry.suffix.lower()) for entry in entries):
        warn_omitted([printable(shard) for shard in shards], "shard", "beside folders or pictures")
        return list(scan(place))
    found: dict[tuple[str, ...], Found] = {}
    for path in shards:
        whole = File.at(path)
        for folders, info in pictures_of(path):
            last, problem = info.name.rpartition("/")[2], "" if info.size else "an empty file"
            name = "/".join((*folders[-1:], last))
            file = File(f"{path}/{info.name}", name, info.size, whole.modified, problem, whole, info.offset_data)
            if (*folders, last) in found:
                raise SafeclError(f"The shards of {printable(place)} hold two pictures {name}; rename or remove one.")
            found[*folders, last] = Found(folders, file)
    return [found[parts] for parts in sorted(found)]


def split_folders(top: Path) -> tuple[Path, Path | None]:
    """The training folder and, where there is one, the test folder."""
    names = {entry.name.lower(): entry for entry in top.iterdir() if entry.is_dir()}
    train = next((names[name] for name in TRAIN if name in names), None)
    # Among other folders, one that holds no folders is a class: trains are photographed, too.
    alone = names.keys() <= {*TRAIN, *TEST}
    if train is None or not (alone or any(entry.is_dir() or entry.suffix == SHARD for entry in train.iterdir())):
        return top, None
    return train, next((names[name] for name in TEST if name in names), None)


def looks_like_domains(found: Sequence[Found]) -> bool:
    """Every picture is two folders deep and the inner names come back under several outer ones."""
    pairs = {f.folders for f in found}
    return all(len(pair) == 2 for pair in pairs) and len({inner for _, inner in pairs}) < len(pairs)


def as_text(name: str) -> str:
    """The name of a file or folder read as UTF-8, whatever the locale; other bytes are surrogates, as in Python."""
    try:
        return os.fsencode(name).decode(errors="surrogateescape")
    except UnicodeEncodeError:  # it is no name of a file here, but text already
        return name


def printable(path: str | Path) -> str:
    """A path for messages: bytes that are not UTF-8, and what is hidden, are shown as escapes."""
    return shown(as_text(os.fspath(path)))
