"""Labelled picture files, read and decoded on demand."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field
from itertools import chain

from PIL import Image

from safecl.streams.pictures.decode import UnreadableError, decode, size_of
from safecl.streams.pictures.find import File, changed, digest_of, printable
from safecl.streams.pictures.images import Label, Pictures
from safecl.streams.pictures.load import readers

AT_A_TIME = 64  # files that a thread reads before it takes others


@dataclass(eq=False, repr=False)
class FilePictures(Pictures):
    """Labelled files. ``upright`` and ``forgiving``: see ``decode``.

    ``notes``: where each file was named, for messages. ``skippable``: whether
    stream.unreadable=skip applies to them.
    """

    files: Sequence[File]
    labels: Sequence[Label]
    _: KW_ONLY
    upright: bool = True
    forgiving: bool = False
    notes: Sequence[str] = ()
    skippable: bool = False
    cacheable = True
    _digests: list[bytes] = field(init=False)  # of the files that were read

    def __post_init__(self) -> None:
        self._digests = [b""] * len(self.files)

    def where(self, index: int) -> str:
        path = printable(self.files[index].path)
        return f"{path} ({self.notes[index]})" if self.notes else path

    def traces(self, indices: Sequence[int]) -> Iterator[bytes]:
        """The name and the content of every file, which is read once, whatever asks for it."""
        chunks = [indices[at : at + AT_A_TIME] for at in range(0, len(indices), AT_A_TIME)]
        with ThreadPoolExecutor(readers()) as pool:
            digests = chain.from_iterable(pool.map(self._digests_of, chunks))
            for i, digest in zip(indices, digests, strict=True):
                known = f"{self.files[i].name}\0{self.upright}\0{self.forgiving}\0"
                yield known.encode(errors="surrogateescape") + digest

    def _digests_of(self, indices: Sequence[int]) -> list[bytes]:
        return [self.digest(i) for i in indices]

    def digest(self, index: int) -> bytes:
        if not self._digests[index]:
            self.read(index)
        return self._digests[index]

    def size_of(self, index: int) -> tuple[int, int]:
        return size_of(self.read(index), self.where(index))

    def decode(self, index: int) -> Image.Image:
        return self.reduced(index)

    def reduced(self, index: int, least: int | None = None) -> Image.Image:
        data = self.read(index)
        where = self.where(index)
        try:
            return decode(data, where, upright=self.upright, forgiving=self.forgiving, least=least)
        except UnreadableError as error:
            hint = ", or set stream.unreadable=skip to omit such pictures" if self.skippable else ""
            raise UnreadableError(error.where, error.reason, error.remedy + hint) from None

    def read(self, index: int) -> bytes:
        """The bytes of a file: the same ones each time, or a fault."""
        data = self.files[index].read(self.where(index))
        digest = digest_of(data)
        before = self._digests[index]
        if before and before != digest:
            raise changed(self.where(index))
        self._digests[index] = digest
        return data
