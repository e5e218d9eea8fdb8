"""Archives from elsewhere, unpacked without trusting them: only plain files, only inside the target folder."""

import gzip
import hashlib
import lzma
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from safecl.errors import SafeclError

DAMAGES = (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)


class Source:
    """The files in a folder. ``path``: where they come from, for messages."""

    def __init__(self, folder: Path, path: Path) -> None:
        self.folder, self.path = folder, path

    @cached_property
    def names(self) -> list[str]:
        """Every plain file by its path below the folder; links are not followed."""
        found = []
        for folder, folders, files in os.walk(self.folder):
            folders[:] = [name for name in folders if not name.startswith(".")]
            paths = (Path(folder, name) for name in files)
            found += [p.relative_to(self.folder).as_posix() for p in paths if p.is_file() and not p.is_symlink()]
        return sorted(found)


class Member(NamedTuple):
    name: str
    plain: bool  # neither a link nor a device
    open: Callable[[], IO[bytes] | None]


def open_source(path: Path, work: Path) -> Source:
    """The files of a folder as it is, or of an archive, unpacked into a folder of its own below ``work``."""
    if path.is_dir():
        return Source(path, path)
    if not path.is_file():
        raise SafeclError(f"There is no archive or folder {path}.")
    read = {zip_members: zipfile.is_zipfile(path), tar_members: tarfile.is_tarfile(path)}
    members = next((members for members, fits in read.items() if fits), None)
    if members is None:
        raise SafeclError(f"{path} is neither a zip nor a tar archive, or it is not whole; fetch it again.")
    try:
        for member in members(path):
            if not member.plain:
                raise SafeclError(f"{path} holds {member.name!r}, which is a link or a device; not unpacked.")
            place = work / path.name / safe(member.name, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            if (stream := member.open()) is not None:
                with stream, open(place, "wb") as out:
                    shutil.copyfileobj(stream, out, 1 << 20)
    except DAMAGES as error:
        raise SafeclError(f"The archive {path} is damaged ({error}); remove it and fetch it again.") from None
    return Source(work / path.name, path)


def zip_members(path: Path) -> Iterator[Member]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            plain = stat.S_IFMT(info.external_attr >> 16) in (0, stat.S_IFREG)
            if not info.is_dir():
                yield Member(info.filename, plain, partial(archive.open, info))


def tar_members(path: Path) -> Iterator[Member]:
    with tarfile.open(path) as archive:
        for member in archive:
            if not member.isdir():
                yield Member(member.name, member.isfile(), partial(archive.extractfile, member))


def md5_of(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "md5").hexdigest()


def safe(name: str, archive: Path) -> str:
    """``name`` if it stays below the folder it is unpacked into."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in name.split("/")[0]:
        raise SafeclError(f"{archive} holds {name!r}, which points outside of it; not unpacked.")
    return name
