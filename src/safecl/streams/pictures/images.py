"""Labelled pictures that can be read by position, and the two views of them that are used.

The plain view (test pictures and statistics): shorter side resized, centre cropped. The canvas
(training): the whole picture in a corner of a square, so that a batch of pictures of any shape is
one tensor to cut random crops from.
"""

import contextlib
import hashlib
import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from safecl.errors import SafeclError
from safecl.streams.labels import Label as Label
from safecl.streams.pictures.decode import ENOUGH
from safecl.streams.pictures.prepare import prepare

ALL = slice(None)
SAMPLE_SIZE = 64  # pictures that are read where a sample will do


@dataclass(frozen=True)
class Transform:
    """How a stream's pictures become inputs of side ``size``.

    ``margin``: the shorter side is resized to ``int(size * margin)`` before the central crop (256 /
    224 by habit, 1 for CIFAR). ``scale`` and ``ratio``: area and aspect of the random crop.
    ``flip``: probability of a horizontal flip.
    """

    size: int = 224
    margin: float = 256 / 224
    scale: tuple[float, float] = (0.05, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5

    @property
    def resize(self) -> int:
        """The shorter side before the central crop."""
        return int(self.size * self.margin + 1e-6)

    @property
    def enough(self) -> int:
        """Pixels of a shorter side from which views are made: no canvas has more than half of
        them.
        """
        return ENOUGH * self.resize


class Pictures(ABC):
    """Labelled pictures, each readable by its position. ``labels`` are the user's own words or
    numbers.
    """

    labels: Sequence[Label]

    @abstractmethod
    def decode(self, index: int) -> Image.Image:
        """The picture at ``index`` as an RGB image of its own size."""

    def reduced(self, index: int, least: int) -> Image.Image:
        """The picture at ``index``, smaller where that saves time; its shorter side has ``least``
        pixels if it can.
        """
        return self.decode(index)

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"<Pictures: {len(self)} with {len(set(self.labels))} different labels>"

    @property
    def cacheable(self) -> bool:
        """Whether the fingerprint is known without decoding: views are kept on disk under it."""
        return False

    def where(self, index: int) -> str:
        """Where the picture at ``index`` comes from, for messages."""
        return f"picture {index}"

    def digest(self, index: int) -> bytes:
        """16 bytes that identify the content of the picture at ``index``: its size and pixels, or
        its file.
        """
        image = self.decode(index)
        return hashlib.blake2b(f"{image.size}".encode() + image.tobytes(), digest_size=16).digest()

    def traces(self, indices: Sequence[int]) -> Iterable[bytes]:
        """What identifies each picture wherever it lies: its content, or what determines that."""
        return map(self.digest, indices)

    def fingerprint(self) -> dict[str, Any]:
        """How many, a digest of every label and trace in order, and their sum, which no order or
        split changes.
        """
        digest = hashlib.blake2b(digest_size=16)
        total = 0
        for label, trace in zip(self.labels, self.traces(range(len(self))), strict=True):
            parts = b"".join(
                len(part).to_bytes(8, "little") + part for part in (repr(label).encode(), trace)
            )
            digest.update(parts)
            total += int.from_bytes(hashlib.blake2b(parts, digest_size=8).digest(), "little")
        return {"pictures": len(self), "digest": digest.hexdigest(), "sum": total % 2**64}

    def size_of(self, index: int) -> tuple[int, int]:
        """The sides of the picture at ``index``, which may have to be turned."""
        return self.decode(index).size

    @cached_property
    def sampled_sizes(self) -> list[tuple[int, int]]:
        """Width and height of a sample of the pictures."""
        found = []
        for i in spread(len(self)):
            with contextlib.suppress(SafeclError):
                # a picture that cannot be read is refused when it is needed
                found.append(self.size_of(i))
        return found or [(1, 1)]

    @property
    def shorter_side(self) -> int:
        """The shorter side that half of the pictures have at least, by a sample of them."""
        return int(np.quantile([min(size) for size in self.sampled_sizes], 0.5, method="lower"))

    def side(self, transform: Transform) -> int:
        """The side of the canvases: as large as the pictures are, between ``resize`` and twice
        that.

        Rounded up to an eighth of ``resize``, so that a few other pictures rarely change it.
        """
        # The longer side that nine of ten pictures do not exceed.
        extent = int(np.quantile([max(size) for size in self.sampled_sizes], 0.9, method="higher"))
        step = math.ceil(transform.resize / 8)
        steps = math.ceil(max(extent - transform.resize, 0) / step)
        return min(transform.resize + steps * step, 2 * transform.resize)

    def plain(self, indices: Sequence[int], transform: Transform) -> Tensor:
        """The plain views: uint8 (n, 3, size, size)."""
        return torch.stack(
            [plain_view(self.reduced(i, transform.enough), transform) for i in indices]
        )

    def canvas(self, indices: Sequence[int], transform: Transform) -> tuple[Tensor, Tensor]:
        """Whole pictures in the top left corners of squares, and their shapes.

        Squares: uint8 (n, 3, side, side). Shapes: float (n, 3), aspect (width / height of the
        picture), and width and height of the corner as fractions of ``side``. No picture is
        enlarged; what is wider or higher is reduced there.
        """
        side = self.side(transform)
        pairs = [canvas_view(self.reduced(i, transform.enough), side) for i in indices]
        return torch.stack([square for square, _ in pairs]), torch.stack(
            [shape for _, shape in pairs]
        )

    def subset(self, indices: Sequence[int]) -> "Pictures":
        """The pictures at ``indices``, in that order."""
        return Selection([self], indices)


class Selection(Pictures):
    """The pictures of ``members``, one after the other, or those at ``indices`` of them; a cache
    below is used.

    ``check`` is called before a picture is read.
    """

    def __init__(
        self,
        members: Sequence[Pictures],
        indices: Sequence[int] | np.ndarray | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        one = len(members) == 1  # no copy of all labels for a few of them
        labels = (
            members[0].labels if one else [label for member in members for label in member.labels]
        )
        self.members = tuple(members)
        self.check = check
        self.indices = (
            np.arange(len(labels)) if indices is None else np.asarray(indices, dtype=np.int64)
        )
        self.labels = [labels[i] for i in self.indices.tolist()]
        self._starts = list(accumulate(map(len, members), initial=0))

    def subset(self, indices: Sequence[int]) -> Pictures:
        return Selection(self.members, self.indices[_index(indices)], self.check)

    @property
    def cacheable(self) -> bool:
        return all(member.cacheable for member in self.members)

    def find(self, index: int) -> tuple[Pictures, int]:
        """The collection with the picture at ``index``, and its position there."""
        self.check()
        position = int(self.indices[index])
        number = bisect_right(self._starts, position) - 1
        return self.members[number], position - self._starts[number]

    def where(self, index: int) -> str:
        inner, position = self.find(index)
        return inner.where(position)

    def digest(self, index: int) -> bytes:
        inner, position = self.find(index)
        return inner.digest(position)

    def traces(self, indices: Sequence[int]) -> Iterator[bytes]:
        for inner, found in groupby(map(self.find, indices), key=itemgetter(0)):
            yield from inner.traces([position for _, position in found])

    def decode(self, index: int) -> Image.Image:
        inner, position = self.find(index)
        return inner.decode(position)

    def reduced(self, index: int, least: int) -> Image.Image:
        inner, position = self.find(index)
        return inner.reduced(position, least)

    def size_of(self, index: int) -> tuple[int, int]:
        inner, position = self.find(index)
        return inner.size_of(position)

    def side(self, transform: Transform) -> int:
        self.check()
        return max(member.side(transform) for member in self.members)

    def plain(self, indices: Sequence[int], transform: Transform) -> Tensor:
        groups = self._grouped(indices)
        if len(groups) == 1:
            return groups[0][0].plain(groups[0][2], transform)
        views = torch.empty((len(indices), 3, transform.size, transform.size), dtype=torch.uint8)
        for member, rows, positions in groups:
            views[rows] = member.plain(positions, transform)
        return views

    def canvas(self, indices: Sequence[int], transform: Transform) -> tuple[Tensor, Tensor]:
        groups = self._grouped(indices)
        if len(self.members) == len(groups) == 1:
            return groups[0][0].canvas(groups[0][2], transform)
        side = self.side(transform)
        squares = torch.zeros((len(indices), 3, side, side), dtype=torch.uint8)
        shapes = torch.empty(len(indices), 3)
        for member, rows, positions in groups:
            smaller, own = member.canvas(positions, transform)
            width = smaller.shape[-1]
            squares[rows, :, :width, :width] = smaller
            shapes[rows] = own * torch.tensor([1.0, width / side, width / side])
        return squares, shapes

    def _grouped(self, indices: Sequence[int]) -> list[tuple[Pictures, Tensor, list[int]]]:
        """Each member, the rows of ``indices`` that belong to it, and their positions in it."""
        self.check()
        wanted = self.indices[_index(indices)]
        numbers = np.searchsorted(self._starts, wanted, side="right") - 1
        rows = {number: np.flatnonzero(numbers == number) for number in np.unique(numbers)}
        return [
            (
                self.members[number],
                torch.from_numpy(own),
                (wanted[own] - self._starts[number]).tolist(),
            )
            for number, own in rows.items()
        ]


def join(members: Sequence[Pictures]) -> Pictures:
    """The pictures of all ``members``, one after the other; selections from the same pictures
    become one.
    """
    first = members[0]
    # a cache is one, too, and must be read through
    plain = [m for m in members if type(m) is Selection]
    if len(plain) == len(members) and all(
        (m.members, m.check) == (plain[0].members, plain[0].check) for m in plain
    ):
        return Selection(
            plain[0].members, np.concatenate([m.indices for m in plain]), plain[0].check
        )
    return Selection(members) if len(members) > 1 else first


class ArrayPictures(Pictures):
    """Pictures held in memory: uint8 (N, H, W, 3)."""

    sides: tuple[int, ...]  # H, W
    cacheable = True

    def __init__(self, arrays: np.ndarray, labels: Sequence[Label]) -> None:
        self.arrays = arrays
        self.labels = labels
        self.sides = arrays.shape[1:3]

    def at(self, indices: Sequence[int], rows: slice = ALL, columns: slice = ALL) -> np.ndarray:
        """uint8 (n, H, W, 3). They are cut while they are chosen: a view would be copied again,
        more slowly.
        """
        return self.arrays[_index(indices), rows, columns]

    def decode(self, index: int) -> Image.Image:
        return Image.fromarray(self.at([index])[0])

    def digest(self, index: int) -> bytes:
        """That of ``Pictures``, without an image in between."""
        (pixels,), (width, height) = self.at([index]), self.size_of(index)
        known = f"{(width, height)}".encode() + pixels.tobytes()
        return hashlib.blake2b(known, digest_size=16).digest()

    def size_of(self, index: int) -> tuple[int, int]:
        return self.sides[1], self.sides[0]

    def side(self, transform: Transform) -> int:
        """Their own size, however small: it is known, and crops are exact."""
        return min(max(self.sides), 2 * transform.resize)

    def plain(self, indices: Sequence[int], transform: Transform) -> Tensor:
        if min(self.sides) != transform.resize:
            return super().plain(indices, transform)
        starts = (round((side - transform.size) / 2) for side in self.sides)
        rows, columns = (slice(start, start + transform.size) for start in starts)
        return torch.from_numpy(self.at(indices, rows, columns)).permute(0, 3, 1, 2)

    def canvas(self, indices: Sequence[int], transform: Transform) -> tuple[Tensor, Tensor]:
        height, width, side = *self.sides, self.side(transform)
        if max(height, width) > side:
            return super().canvas(indices, transform)
        squares = torch.from_numpy(self.at(indices)).permute(0, 3, 1, 2)
        if height != width:
            squares = F.pad(squares, (0, side - width, 0, side - height))
        return squares, torch.tensor([width / height, width / side, height / side]).expand(
            len(squares), 3
        )


def _index(indices: Sequence[int]) -> np.ndarray:
    return np.asarray(indices, dtype=np.int64)


def spread(count: int, most: int = SAMPLE_SIZE) -> list[int]:
    """Up to ``most`` positions of ``count``, evenly spread from the first to the last."""
    return [round(position) for position in np.linspace(0, count - 1, min(count, most)).tolist()]


def plain_view(image: Image.Image, transform: Transform) -> Tensor:
    """uint8 (3, size, size); see ``prepare``."""
    return pixels(prepare(image, transform.size, transform.resize))


def canvas_view(image: Image.Image, side: int) -> tuple[Tensor, Tensor]:
    """The picture in a square: uint8 (3, side, side), and its shape: float (3,); see
    ``Pictures.canvas``.
    """
    width = min(image.width, side)
    height = min(image.height, side)
    aspect = image.width / image.height
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.LANCZOS)
    square = torch.zeros((3, side, side), dtype=torch.uint8)
    square[:, :height, :width] = pixels(image)
    return square, torch.tensor([aspect, width / side, height / side])


def pixels(image: Image.Image) -> Tensor:
    """uint8 (3, H, W)."""
    return torch.from_numpy(np.array(image, dtype=np.uint8)).permute(2, 0, 1)
