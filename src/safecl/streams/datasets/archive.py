"""Archives from elsewhere, opened without trusting them: only plain files, only inside the target folder."""

import gzip
import hashlib
import lzma
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from io import FileIO
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from safecl.errors import SafeclError


class Member(NamedTuple):
    name: str
    size: int
    plain: bool  # neither a link nor a device
    open: Callable[[], IO[bytes] | None]


class Source(ABC):
    """Named files: the members of an archive or of a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def members(self) -> Iterator[Member]:
        """Every file, in the order that is fastest to read; each can be opened until the next one is read."""

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Every plain file by its name, with its size; raises on a name or a kind that could do harm."""
        found = {}
        with whole(self.path):
            for member in self.members():
                if not member.plain:
                    raise SafeclError(f"{self.path} holds {member.name!r}, which is a link or a device; not unpacked.")
                found[safe(member.name, self.path)] = member.size
        return found

    def names(self) -> list[str]:
        return sorted(self.sizes)

    def open_all(self, wanted: set[str]) -> Iterator[tuple[str, IO[bytes]]]:
        """The wanted files, one after the other."""
        left = set(wanted)
        for member in self.members() if left else ():
            if member.name in left and (stream := member.open()) is not None:
                with stream:
                    yield member.name, stream
                left.discard(member.name)
                if not left:
                    return

    def read(self, name: str) -> bytes:
        with whole(self.path):
            for _, stream in self.open_all({name}):
                return stream.read()
        raise SafeclError(f"{self.path} has no file {name}.")

    def extract(self, moves: dict[str, str], target: Path) -> None:
        """Write each file to its place below ``target``."""
        with whole(self.path):
            for name, stream in self.open_all(set(moves)):
                place = target / moves[name]
                place.parent.mkdir(parents=True, exist_ok=True)
                with open(place, "wb") as out:
                    shutil.copyfileobj(stream, out, 1 << 20)


class ZipSource(Source):
    def members(self) -> Iterator[Member]:
        with zipfile.ZipFile(self.path) as archive:
            for info in archive.infolist():
                mode = info.external_attr >> 16
                plain = stat.S_IFMT(mode) in (0, stat.S_IFREG, stat.S_IFDIR)
                if not info.is_dir():
                    yield Member(info.filename, info.file_size, plain, partial(archive.open, info))


class TarSource(Source):
    def members(self) -> Iterator[Member]:
        with tarfile.open(self.path) as archive:
            for member in archive:
                if not member.isdir():
                    yield Member(member.name, member.size, member.isfile(), partial(archive.extractfile, member))


class FolderSource(Source):
    """An unpacked archive. Links inside it are not followed."""

    def members(self) -> Iterator[Member]:
        for folder, folders, files in os.walk(self.path):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for path in (Path(folder, name) for name in sorted(files)):
                if path.is_file() and not path.is_symlink():
                    name = path.relative_to(self.path).as_posix()
                    yield Member(name, path.stat().st_size, True, partial(FileIO, path))


@contextmanager
def whole(path: Path) -> Iterator[None]:
    """Errors of a damaged archive as one sentence."""
    try:
        yield
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise SafeclError(f"The archive {path} is damaged ({error}); remove it and fetch it again.") from None


def open_source(path: Path) -> Source:
    if path.is_dir():
        return FolderSource(path)
    if not path.is_file():
        raise SafeclError(f"There is no archive or folder {path}.")
    if zipfile.is_zipfile(path):
        return ZipSource(path)
    if tarfile.is_tarfile(path):
        return TarSource(path)
    raise SafeclError(f"{path} is neither a zip nor a tar archive, or it is not whole; fetch it again.")


def md5_of(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "md5").hexdigest()


def safe(name: str, archive: Path) -> str:
    """``name`` if it stays below the folder it is unpacked into."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in name.split("/")[0]:
        raise SafeclError(f"{archive} holds {name!r}, which points outside of it; not unpacked.")
    return name
