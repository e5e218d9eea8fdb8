"""Pictures that can be read by position, and the two views of them that a network sees.

The plain view (test pictures and statistics) is exact: shorter side resized, centre cropped. The canvas is
the whole picture squashed to a square; ``augment`` cuts random crops out of a batch of canvases in one call on
whatever device they are on, with the geometry of the picture before it was squashed.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as TF

Label: TypeAlias = str | int
SAMPLE = 64  # pictures that are looked at where a sample will do


@dataclass(frozen=True)
class Transform:
    """How a stream's pictures become inputs of side ``size``.

    ``margin``: the shorter side is resized to ``int(size * margin)`` before the central crop (256 / 224 as the
    field does, 1 for CIFAR). ``scale`` and ``ratio``: area and aspect of the random crop. ``flip``: probability
    of a horizontal flip.
    """

    size: int = 224
    margin: float = 256 / 224
    scale: tuple[float, float] = (0.05, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5

    @property
    def resize(self) -> int:
        """Side of the canvas, and of the shorter side before the central crop."""
        return int(self.size * self.margin + 1e-6)


class Pictures(ABC):
    """Labelled pictures, each readable by its position. ``labels`` are the user's own words or numbers."""

    labels: Sequence[Label]

    @abstractmethod
    def decode(self, index: int) -> Image.Image:
        """The picture at ``index`` as an RGB image of its own size."""

    def __len__(self) -> int:
        return len(self.labels)

    def identity(self) -> str | None:
        """A fingerprint that changes when a picture does, for the cache; ``None``: not known, never cached."""
        return None

    def where(self, index: int) -> str:
        """Where the picture at ``index`` comes from, for messages."""
        return f"picture {index}"

    def trace(self, index: int) -> bytes:
        """What is known of the picture at ``index`` without reading it, wherever it lies."""
        return b""

    def content(self, index: int) -> bytes:
        """The bytes of the picture at ``index`` as it is stored, where that is always the same."""
        return b""

    def fingerprint(self) -> str:
        """A digest of the pictures that does not depend on where they lie: for checks that data is still the same.

        Covers every label and trace, and the contents of up to ``SAMPLE`` pictures spread evenly.
        """
        digest = hashlib.blake2b(digest_size=16)
        for i, label in enumerate(self.labels):
            for part in (repr(label).encode(), self.trace(i)):
                digest.update(len(part).to_bytes(8, "little") + part)
        for i in spread(len(self)):
            digest.update(hashlib.blake2b(self.content(i)).digest())
        return digest.hexdigest()

    def plain(self, indices: Sequence[int], transform: Transform) -> Tensor:
        """The plain views: uint8 (n, 3, size, size)."""
        return torch.stack([plain_view(self.decode(i), transform) for i in indices])

    def canvas(self, indices: Sequence[int], transform: Transform) -> tuple[Tensor, Tensor]:
        """Whole pictures squashed to squares: uint8 (n, 3, side, side), and width / height: float (n,).

        ``side`` is ``transform.resize``, or less where every picture of the collection is a smaller square.
        """
        images = [self.decode(i) for i in indices]
        aspects = torch.tensor([image.width / image.height for image in images])
        return torch.stack([squash(image, transform) for image in images]), aspects

    def subset(self, indices: Sequence[int]) -> "Pictures":
        """The pictures at ``indices``, in that order."""
        return Subset(self, indices)


class Wrapped(Pictures):
    """Pictures of another collection, each at the position that ``at`` gives; a cache below is used."""

    def __init__(self, inner: Pictures, labels: Sequence[Label]) -> None:
        self.inner, self.labels = inner, labels

    def at(self, index: int) -> int:
        return index

    def where(self, index: int) -> str:
        return self.inner.where(self.at(index))

    def trace(self, index: int) -> bytes:
        return self.inner.trace(self.at(index))

    def content(self, index: int) -> bytes:
        return self.inner.content(self.at(index))

    def decode(self, index: int) -> Image.Image:
        return self.inner.decode(self.at(index))

    def plain(self, indices: Sequence[int], transform: Transform) -> Tensor:
        return self.inner.plain([self.at(i) for i in indices], transform)

    def canvas(self, indices: Sequence[int], transform: Transform) -> tuple[Tensor, Tensor]:
        return self.inner.canvas([self.at(i) for i in indices], transform)


class Subset(Wrapped):
    """The pictures of ``inner`` at ``indices``."""

    def __init__(self, inner: Pictures, indices: Sequence[int]) -> None:
        self.indices = [int(i) for i in indices]
        super().__init__(inner, [inner.labels[i] for i in self.indices])

    def at(self, index: int) -> int:
        return self.indices[index]

    def subset(self, indices: Sequence[int]) -> Pictures:
        return Subset(self.inner, [self.indices[i] for i in indices])

    def identity(self) -> str | None:
        inner = self.inner.identity()
        if inner is None:
            return None
        chosen = np.asarray(self.indices, dtype=np.int64).tobytes()
        return hashlib.blake2b(inner.encode() + chosen, digest_size=16).hexdigest()


class Joined(Pictures):
    """Several collections, one after the other."""

    def __init__(self, members: Sequence[Pictures]) -> None:
        self.members = members
        self.labels = [label for member in members for label in member.labels]
        self._starts = np.cumsum([0, *(len(member) for member in members)])

    def find(self, index: int) -> tuple[Pictures, int]:
        """The member with the picture at ``index``, and its position there."""
        number = int(np.searchsorted(self._starts, index, side="right")) - 1
        return self.members[number], index - int(self._starts[number])

    def where(self, index: int) -> str:
        member, position = self.find(index)
        return member.where(position)

    def trace(self, index: int) -> bytes:
        member, position = self.find(index)
        return member.trace(position)

    def content(self, index: int) -> bytes:
        member, position = self.find(index)
        return member.content(position)

    def decode(self, index: int) -> Image.Image:
        member, position = self.find(index)
        return member.decode(position)


def join(members: Sequence[Pictures]) -> Pictures:
    """The pictures of all ``members``, one after the other; subsets of one collection become one subset of it."""
    first = members[0]
    if isinstance(first, Subset) and all(isinstance(m, Subset) and m.inner is first.inner for m in members):
        return Subset(first.inner, [i for m in members if isinstance(m, Subset) for i in m.indices])
    return Joined(members) if len(members) > 1 else first


class ArrayPictures(Pictures):
    """Pictures held in memory: uint8 (N, H, W, 3)."""

    def __init__(self, arrays: np.ndarray, labels: Sequence[Label]) -> None:
        self.arrays, self.labels = arrays, labels

    def decode(self, index: int) -> Image.Image:
        return Image.fromarray(self.arrays[index])

    def trace(self, index: int) -> bytes:
        return str(self.arrays.shape[1:]).encode() + bytes(self.arrays[index].tobytes())

    def identity(self) -> str:
        digest = hashlib.blake2b(str(self.arrays.shape).encode(), digest_size=16)
        digest.update(np.ascontiguousarray(self.arrays).data)
        return digest.hexdigest()

    def plain(self, indices: Sequence[int], transform: Transform) -> Tensor:
        sides = self.arrays.shape[1:3]
        if min(sides) != transform.resize:
            return super().plain(indices, transform)
        top, left = (round((side - transform.size) / 2) for side in sides)
        rows, columns = slice(top, top + transform.size), slice(left, left + transform.size)
        return torch.from_numpy(self.arrays[np.asarray(indices, dtype=np.int64), rows, columns]).permute(0, 3, 1, 2)

    def canvas(self, indices: Sequence[int], transform: Transform) -> tuple[Tensor, Tensor]:
        height, width = self.arrays.shape[1:3]
        if height != width or height > transform.resize:
            return super().canvas(indices, transform)
        # A crop of the small square itself is what torchvision takes: enlarging it first only costs memory.
        squares = torch.from_numpy(self.arrays[np.asarray(indices, dtype=np.int64)])
        return squares.permute(0, 3, 1, 2), torch.ones(len(squares))


def spread(count: int, most: int = SAMPLE) -> list[int]:
    """Up to ``most`` positions of ``count``, evenly spread from the first to the last."""
    return [round(position) for position in np.linspace(0, count - 1, min(count, most)).tolist()]


def plain_view(image: Image.Image, transform: Transform) -> Tensor:
    """Shorter side to ``resize`` (bicubic), central crop of ``size``: uint8 (3, size, size)."""
    image = TF.resize(image, [transform.resize], InterpolationMode.BICUBIC)
    return pixels(TF.center_crop(image, [transform.size]))


def squash(image: Image.Image, transform: Transform) -> Tensor:
    """The whole picture as a square: uint8 (3, resize, resize)."""
    side = transform.resize
    # Crops are cut bilinearly: enlarged in any other way, small pictures would come out sharper than from the file.
    mode = InterpolationMode.BICUBIC if min(image.size) >= side else InterpolationMode.BILINEAR
    return pixels(TF.resize(image, [side, side], mode))


def pixels(image: Image.Image) -> Tensor:
    """uint8 (3, H, W)."""
    return torch.from_numpy(np.array(image, dtype=np.uint8)).permute(2, 0, 1)


def augment(canvas: Tensor, aspects: Tensor, transform: Transform, generator: torch.Generator) -> Tensor:
    """A random crop, resized, and perhaps flipped, of each picture: float (n, 3, size, size) in [0, 1].

    The same distribution as torchvision's RandomResizedCrop and RandomHorizontalFlip on the unsquashed picture.
    """
    return cut_out(canvas, random_crops(aspects, transform, generator).to(canvas.device), transform.size)


def random_crops(aspects: Tensor, transform: Transform, generator: torch.Generator) -> Tensor:
    """Crops of pictures with these aspects: half-extent and centre along x and y in [-1, 1], (n, 2, 2).

    ``generator`` is on the CPU, so that a seed means the same crops on every device.
    """
    left, top, width, height = random_boxes(aspects, transform, generator).unbind(1)
    flipped = torch.rand(len(aspects), generator=generator) < transform.flip
    across = torch.stack([torch.where(flipped, -width, width), 2 * left + width - 1], dim=1)  # negative: mirrored
    return torch.stack([across, torch.stack([height, 2 * top + height - 1], dim=1)], dim=1)


def cut_out(canvas: Tensor, crops: Tensor, size: int) -> Tensor:
    """The crops (n, 2, 2) of canvases (n, 3, side, side), on their device: float (n, 3, size, size) in [0, 1]."""
    centres = (torch.arange(size, device=canvas.device) * 2 + 1) / size - 1  # of the output's pixels, in [-1, 1]
    x, y = (crops[:, :, :1] * centres + crops[:, :, 1:]).unbind(1)  # (n, size) each
    side = (-1, size, size)
    grid = torch.stack([x[:, None, :].expand(side), y[:, :, None].expand(side)], dim=-1)
    return F.grid_sample(canvas.float() / 255, grid, padding_mode="border", align_corners=False).clamp_(0, 1)


def random_boxes(aspects: Tensor, transform: Transform, generator: torch.Generator, tries: int = 10) -> Tensor:
    """Crop boxes (left, top, width, height) as fractions of the picture: (n, 4).

    The first of ``tries`` draws that fits; if none does, the largest central box of an allowed aspect.
    """
    n = len(aspects)
    low, high = transform.scale
    area = torch.rand(n, tries, generator=generator) * (high - low) + low
    log_ratio = torch.tensor(transform.ratio).log()
    ratio = (torch.rand(n, tries, generator=generator) * (log_ratio[1] - log_ratio[0]) + log_ratio[0]).exp()
    # In units where the picture is (aspect × 1): w·h = area·aspect and w/h = ratio; fractions of the sides follow.
    relative = ratio / aspects[:, None].cpu()
    width, height = (area * relative).sqrt(), (area / relative).sqrt()
    fits = (width <= 1) & (height <= 1)
    first = fits.float().argmax(dim=1, keepdim=True)
    found = fits.any(dim=1)
    closest = aspects.cpu().clamp(*transform.ratio) / aspects.cpu()
    width = torch.where(found, width.gather(1, first)[:, 0], closest.clamp(max=1))
    height = torch.where(found, height.gather(1, first)[:, 0], (1 / closest).clamp(max=1))
    corner = torch.rand(n, 2, generator=generator)
    left = torch.where(found, corner[:, 0], torch.tensor(0.5)) * (1 - width)
    top = torch.where(found, corner[:, 1], torch.tensor(0.5)) * (1 - height)
    return torch.stack([left, top, width, height], dim=1)
