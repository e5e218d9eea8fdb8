"""Labelled picture files, read and decoded on demand."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass

from PIL import Image

from safecl.streams.pictures.decode import UnreadableError, decode, size_of
from safecl.streams.pictures.find import File, printable
from safecl.streams.pictures.images import Label, Pictures, spread

MAX_TRACED, TRACED_BYTES = 4096, 65536  # files whose ends are part of a fingerprint, and bytes of each


@dataclass(eq=False, repr=False)
class FilePictures(Pictures):
    """Labelled files. ``upright`` and ``forgiving``: see ``decode``.

    ``notes``: where each file was named, for messages. ``skippable``: whether stream.unreadable=skip applies to them.
    """

    files: Sequence[File]
    labels: Sequence[Label]
    _: KW_ONLY
    upright: bool = True
    forgiving: bool = False
    notes: Sequence[str] = ()
    skippable: bool = False

    def where(self, index: int) -> str:
        path = printable(self.files[index].path)
        return f"{path} ({self.notes[index]})" if self.notes else path

    def identity(self) -> str:
        digest = hashlib.blake2b(f"{self.upright} {self.forgiving}".encode(), digest_size=16)
        for file in self.files:
            known = f"{os.path.abspath(file.path)}\0{file.size}\0{file.modified}\0"
            digest.update(known.encode(errors="surrogateescape"))
        return digest.hexdigest()

    def traces(self, indices: Sequence[int]) -> Iterator[bytes]:
        """The name and size of every file, and the end of up to ``MAX_TRACED``: reading all would take minutes.

        Whether a file is one of these depends on no split or order.
        """
        sampled = set(spread(len(self.files), MAX_TRACED))
        for i in indices:
            known = f"{self.files[i].name}\0{self.files[i].size}\0{self.upright}\0{self.forgiving}"
            end = hashlib.blake2b(self.read(i, TRACED_BYTES), digest_size=16).digest() if i in sampled else b""
            yield known.encode(errors="surrogateescape") + end

    def digest(self, index: int) -> bytes:
        return self.files[index].digest(self.where(index))

    def size_of(self, index: int) -> tuple[int, int]:
        return size_of(self.read(index), self.where(index))

    def decode(self, index: int) -> Image.Image:
        return self.reduced(index)

    def reduced(self, index: int, least: int | None = None) -> Image.Image:
        data, where = self.read(index), self.where(index)
        try:
            return decode(data, where, upright=self.upright, forgiving=self.forgiving, least=least)
        except UnreadableError as error:
            hint = ", or set stream.unreadable=skip to omit such pictures" if self.skippable else ""
            raise UnreadableError(error.where, error.reason, error.remedy + hint) from None

    def read(self, index: int, last: int | None = None) -> bytes:
        """The bytes of a file, or the ``last`` ones."""
        return self.files[index].read(last, self.where(index))
