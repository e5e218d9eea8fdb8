"""Labelled picture files, read and decoded when they are asked for."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from safecl.errors import SafeclError
from safecl.streams.decoding import decode
from safecl.streams.images import Label, Pictures

EXTENSIONS = frozenset(
    (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm")
)


@dataclass(frozen=True, slots=True)
class File:
    """A file as it was when its folder was listed; one that has changed since is refused."""

    path: str
    size: int
    modified: int

    @classmethod
    def at(cls, path: str | Path) -> "File":
        try:
            found = os.stat(path)
        except OSError as error:
            raise SafeclError(f"The picture {path} cannot be read: {error.strerror or error}.") from None
        return cls(os.fspath(path), found.st_size, found.st_mtime_ns)


class FilePictures(Pictures):
    """Labelled files. ``upright`` and ``forgiving``: see ``decode``."""

    def __init__(
        self, files: Sequence[File], labels: Sequence[Label], *, upright: bool = True, forgiving: bool = False
    ) -> None:
        self.files, self.labels, self.upright, self.forgiving = files, labels, upright, forgiving

    def where(self, index: int) -> str:
        return self.files[index].path

    def identity(self) -> str:
        digest = hashlib.blake2b(f"{self.upright} {self.forgiving}".encode(), digest_size=16)
        for file in self.files:
            digest.update(
                f"{os.path.abspath(file.path)}\0{file.size}\0{file.modified}\0".encode(errors="surrogateescape")
            )
        return digest.hexdigest()

    def decode(self, index: int) -> Image.Image:
        file = self.files[index]
        return decode(self.read(file), file.path, upright=self.upright, forgiving=self.forgiving)

    def read(self, file: File) -> bytes:
        """The bytes of ``file``, if it is still the file that was found."""
        try:
            with open(file.path, "rb") as stream:
                now = os.fstat(stream.fileno())
                data = stream.read()
        except FileNotFoundError:
            raise SafeclError(
                f"The picture {file.path} has gone since its folder was listed; leave the data alone during a run."
            ) from None
        except OSError as error:
            raise SafeclError(f"The picture {file.path} cannot be read: {error.strerror or error}.") from None
        if (now.st_size, now.st_mtime_ns) != (file.size, file.modified) or len(data) != file.size:
            raise SafeclError(
                f"The picture {file.path} has changed since its folder was listed; leave the data alone during a run."
            )
        return data
