"""Labelled picture files, read and decoded on demand."""

import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from safecl.errors import SafeclError
from safecl.streams.pictures.decode import UnreadableError, decode, size_of
from safecl.streams.pictures.images import Label, Pictures, spread

MAX_TRACED, TRACED_BYTES = 4096, 65536  # files of a part whose ends are part of its fingerprint, and bytes of each


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


def problem(path: str, error: OSError) -> str:
    """Why a file cannot be opened."""
    if error.errno == errno.ELOOP:
        return "a link to itself"
    if error.errno == errno.ENOENT:
        return "a link to nothing" if os.path.islink(path) else "no such file"
    return (error.strerror or str(error)).lower()


class FilePictures(Pictures):
    """Labelled files. ``upright`` and ``forgiving``: see ``decode``.

    ``notes``: where each file was named, for messages. ``skippable``: whether stream.unreadable=skip applies to them.
    """

    def __init__(
        self,
        files: Sequence[File],
        labels: Sequence[Label],
        *,
        upright: bool = True,
        forgiving: bool = False,
        notes: Sequence[str] = (),
        skippable: bool = False,
    ) -> None:
        self.files, self.labels, self.upright, self.forgiving = files, labels, upright, forgiving
        self.notes, self.skippable = notes, skippable

    def where(self, index: int) -> str:
        path = printable(self.files[index].path)
        return f"{path} ({self.notes[index]})" if self.notes else path

    def identity(self) -> str:
        digest = hashlib.blake2b(f"{self.upright} {self.forgiving}".encode(), digest_size=16)
        for file in self.files:
            digest.update(
                f"{os.path.abspath(file.path)}\0{file.size}\0{file.modified}\0".encode(errors="surrogateescape")
            )
        return digest.hexdigest()

    def traces(self, indices: Sequence[int]) -> Iterator[bytes]:
        """The name and size of every file, and the end of up to ``MAX_TRACED``: reading all would take minutes."""
        sampled = {indices[i] for i in spread(len(indices), MAX_TRACED)}
        for i in indices:
            known = f"{self.files[i].name}\0{self.files[i].size}\0{self.upright}\0{self.forgiving}"
            end = hashlib.blake2b(self.read(i, TRACED_BYTES), digest_size=16).digest() if i in sampled else b""
            yield known.encode(errors="surrogateescape") + end

    def digest(self, index: int) -> bytes:
        return hashlib.blake2b(self.read(index), digest_size=16).digest()

    def size_of(self, index: int) -> tuple[int, int]:
        return size_of(self.read(index), self.where(index), upright=self.upright)

    def decode(self, index: int) -> Image.Image:
        try:
            return decode(self.read(index), self.where(index), upright=self.upright, forgiving=self.forgiving)
        except UnreadableError as error:
            hint = ", or set stream.unreadable=skip to omit such pictures" if self.skippable else ""
            raise UnreadableError(error.where, error.reason, error.remedy + hint) from None

    def read(self, index: int, last: int | None = None) -> bytes:
        """The bytes of a file, or the ``last`` ones, if it is still the file that was found."""
        file, where = self.files[index], self.where(index)
        if file.problem:
            raise UnreadableError(where, file.problem)
        count = file.size if last is None else min(file.size, last)
        try:
            with open(file.path, "rb") as stream:
                now = os.fstat(stream.fileno())
                stream.seek(file.size - count)
                data = stream.read()
            if (now.st_size, now.st_mtime_ns) == (file.size, file.modified) and len(data) == count:
                return data
        except FileNotFoundError:
            pass
        except OSError as error:
            raise UnreadableError(where, problem(file.path, error)) from None
        raise SafeclError(
            f"The picture {where} has changed or gone since its folder was listed; leave the data alone during a run."
        )


def as_text(name: str) -> str:
    """The name of a file or folder read as UTF-8, whatever the locale; other bytes are surrogates, as in Python."""
    try:
        return os.fsencode(name).decode(errors="surrogateescape")
    except UnicodeEncodeError:  # it is no name of a file here, but text already
        return name


def printable(path: str | Path) -> str:
    """A path for messages: bytes that are not UTF-8 are shown as escapes."""
    return as_text(os.fspath(path)).encode(errors="backslashreplace").decode()
