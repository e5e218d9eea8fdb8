"""Archives from elsewhere, unpacked without trusting them: nothing is written outside the target
folder.
"""

import gzip
import hashlib
import lzma
import os
import tarfile
import zipfile
import zlib
from functools import cached_property
from pathlib import Path

from safecl.errors import SafeclError

DAMAGES = (
    zipfile.BadZipFile,
    tarfile.TarError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    gzip.BadGzipFile,
)


class Source:
    """The files in a folder. ``path``: where they come from, for messages."""

    def __init__(self, folder: Path, path: Path) -> None:
        self.folder = folder
        self.path = path

    @cached_property
    def names(self) -> list[str]:
        """Every plain file by its path below the folder; links are not followed."""
        found = []
        for folder, folders, files in os.walk(self.folder):
            folders[:] = [name for name in folders if not name.startswith(".")]
            paths = (Path(folder, name) for name in files)
            found += [
                p.relative_to(self.folder).as_posix()
                for p in paths
                if p.is_file() and not p.is_symlink()
            ]
        return sorted(found)


def open_source(path: Path, work: Path) -> Source:
    """The files of a folder as it is, or of an archive, unpacked into a folder of its own below
    ``work``.
    """
    if path.is_dir():
        return Source(path, path)
    if not path.is_file():
        raise SafeclError("dataset.source.missing", path=path)
    place = work / path.name
    place.mkdir(parents=True)
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as zipped:
                # a name that leads outside is cut, and a link becomes a plain file
                zipped.extractall(place)
        elif not tarfile.is_tarfile(path):
            raise SafeclError("dataset.archive.not-whole", path=path)
        elif not hasattr(tarfile, "data_filter"):  # Python 3.11 before 3.11.4
            raise SafeclError("dataset.archive.unsafe", path=path)
        else:
            with tarfile.open(path) as tarred:
                # refuses devices and all that leads outside
                tarred.extractall(place, filter="data")
    except DAMAGES as error:
        raise SafeclError("dataset.archive.damaged", path=path, error=error) from None
    return Source(place, path)


def md5_of(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "md5").hexdigest()
