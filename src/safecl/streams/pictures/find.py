"""Picture files on disk: found, named, and read as they were when they were found. Nothing heavy is imported."""

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from safecl.errors import SafeclError
from safecl.lines import shown, warn_omitted
from safecl.streams.pictures.decode import FURTHER, UNREAD, UnreadableError, readable, unread_because


@dataclass(frozen=True, slots=True)
class File:
    """A file as it was when its folder was listed; one that has changed since is refused.

    ``name``: the last two parts of its path below the data folder, which stay the same when that folder is moved.
    ``problem``: why it cannot be opened, if it cannot.
    """

    path: str
    name: str
    size: int
    modified: int
    problem: str = ""

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
        try:
            with open(self.path, "rb") as stream:
                now = os.fstat(stream.fileno())
                stream.seek(self.size - count)
                data = stream.read()
            if (now.st_size, now.st_mtime_ns) == (self.size, self.modified) and len(data) == count:
                return data
        except FileNotFoundError:
            pass
        except OSError as error:
            raise UnreadableError(where, problem(self.path, error)) from None
        raise SafeclError(
            f"The picture {where} has changed or gone since its folder was listed; leave the data alone during a run."
        )


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
        if entry.name.startswith(".") or entry.name == "__MACOSX":
            continue
        if os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir():  # a link to itself is no folder
            yield from _scan(entry.path, (*folders, as_text(entry.name)), (*above, identity), unread)
        elif readable(ending := os.path.splitext(entry.name)[1].lower()):
            yield Found(folders, File.at(entry.path, "/".join((*folders[-1:], as_text(entry.name)))))
        elif ending in FURTHER or ending in UNREAD:
            unread.append(entry.path)


def as_text(name: str) -> str:
    """The name of a file or folder read as UTF-8, whatever the locale; other bytes are surrogates, as in Python."""
    try:
        return os.fsencode(name).decode(errors="surrogateescape")
    except UnicodeEncodeError:  # it is no name of a file here, but text already
        return name


def printable(path: str | Path) -> str:
    """A path for messages: bytes that are not UTF-8, and what is hidden, are shown as escapes."""
    return shown(as_text(os.fspath(path)))
