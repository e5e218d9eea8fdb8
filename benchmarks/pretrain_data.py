"""Pictures for pre-training: read or drawn once into uint8 tensors, cut and recoloured in batches
on the device.
"""

import io
import math
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from pretrain_characters import SANS_ONLY
from torch import Tensor

from safecl.streams.drawn.drawing import FACES, SANS, SIDE, Difficulty, draw
from safecl.streams.pictures.crop import cut_out
from safecl.streams.pictures.images import Transform, plain_view

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp")
LARGE = 2 * SIDE  # a photograph is kept at this side if it is as large, and at SIDE if not


@dataclass
class Labelled:
    """pixels: uint8 (N, 3, S, S); labels: int64 (N,), positions in ``classes``; groups: (N,), the
    folder of each.
    """

    pixels: Tensor
    labels: Tensor
    classes: list[str]
    groups: Tensor

    def to(self, device: torch.device) -> "Labelled":
        return Labelled(
            self.pixels.to(device), self.labels.to(device), self.classes, self.groups.to(device)
        )

    def where(self, chosen: Tensor) -> "Labelled":
        return replace(
            self, pixels=self.pixels[chosen], labels=self.labels[chosen], groups=self.groups[chosen]
        )


@dataclass
class Photographs:
    """pixels: uint8 (N, 3, LARGE, LARGE), small pictures enlarged; labels: int64 (N,), -1 where
    there is none.

    kinds: (N,), 0 for small pictures, 1 for large ones, 2 for mosaics of small ones.
    """

    pixels: Tensor
    labels: Tensor
    kinds: Tensor

    @property
    def classes(self) -> int:
        """At least 1: a linear head needs an output."""
        return max(1, int(self.labels.max()) + 1)


def read_photographs(
    paths: Sequence[Path], device: torch.device, most: int | None = None
) -> Photographs:
    """Folders (all below them) and npz shards with labels, as squares; a mosaic for each four small
    pictures.

    A mosaic is as large as a large photograph and as sharp, which a small photograph enlarged is
    not. ``most``: the first so many of each path.
    """
    found = [source for path in paths for source in _sources(path)[:most]]
    if not found:
        raise SystemExit(f"There are no pictures in {', '.join(map(str, paths))}.")
    arrays = in_processes(_square, [picture for picture, _ in found], 256)
    labels = torch.tensor([label for _, label in found])
    kinds = torch.tensor([int(len(array) == LARGE) for array in arrays])
    small, large = (
        _stack([a for a in arrays if len(a) == side], side).to(device) for side in (SIDE, LARGE)
    )
    pixels = torch.empty(len(arrays), 3, LARGE, LARGE, dtype=torch.uint8, device=device)
    pixels[kinds == 0], pixels[kinds == 1] = enlarged(small), large
    mosaics = mosaic(small[: len(small) // 4 * 4])
    labels, kinds = (
        torch.cat([some, torch.full((len(mosaics),), value)]).to(device)
        for some, value in ((labels, -1), (kinds, 2))
    )
    return Photographs(torch.cat([pixels, mosaics]), labels, kinds)


def _sources(path: Path) -> list[tuple[Path | bytes, int]]:
    """Pictures, each with its label or -1."""
    if path.suffix != ".npz":
        return [(file, -1) for file in sorted(path.rglob("*")) if file.suffix.lower() in SUFFIXES]
    shard = np.load(path)  # ``bytes``: encoded pictures end to end; ``off``: offsets; ``y``: labels
    blob = shard["bytes"].tobytes()
    offsets = shard["off"]
    return [
        (blob[start:end], int(y))
        for (start, end), y in zip(pairwise(offsets), shard["y"], strict=True)
    ]


def _square(source: Path | bytes) -> np.ndarray:
    image = Image.open(io.BytesIO(source) if isinstance(source, bytes) else source).convert("RGB")
    side = min(image.size)
    left = (image.width - side) // 2
    top = (image.height - side) // 2
    size = LARGE if side >= LARGE else SIDE
    return np.asarray(
        image.resize(
            (size, size), Image.Resampling.BICUBIC, box=(left, top, left + side, top + side)
        )
    )


def enlarged(pixels: Tensor) -> Tensor:
    """uint8 (n, 3, S, S) → (n, 3, LARGE, LARGE)."""
    out = pixels.new_empty(len(pixels), 3, LARGE, LARGE)
    for some, into in zip(pixels.split(1024), out.split(1024), strict=True):
        into.copy_(F.interpolate(some.float(), LARGE, mode="bicubic").round_().clamp_(0, 255))
    return out


def mosaic(pixels: Tensor) -> Tensor:
    """Pictures (4n, 3, S, S) in squares of four: (n, 3, 2S, 2S)."""
    side = pixels.shape[-1]
    return (
        pixels.view(-1, 2, 2, 3, side, side)
        .permute(0, 3, 1, 4, 2, 5)
        .reshape(-1, 3, 2 * side, 2 * side)
    )


def read_labelled(folder: Path, size: int, classes: list[str] | None = None) -> Labelled:
    """Pictures below ``folder`` as the package sees them at ``size``; a picture's class is the name
    of its folder.
    """
    files = [file for file in sorted(folder.rglob("*")) if file.suffix.lower() in SUFFIXES]
    places = sorted({file.parent for file in files})
    classes = sorted({place.name for place in places}) if classes is None else classes
    numbers = {name: number for number, name in enumerate(classes)}
    position = {place: number for number, place in enumerate(places)}
    pixels = in_threads(partial(_plain, transform=Transform(size=size)), files)
    labels, groups = (
        [table(file) for file in files]
        for table in (lambda f: numbers[f.parent.name], lambda f: position[f.parent])
    )
    return Labelled(torch.stack(pixels), torch.tensor(labels), classes, torch.tensor(groups))


def _plain(file: Path, transform: Transform) -> Tensor:
    with Image.open(file) as image:
        return plain_view(image.convert("RGB"), transform)


def in_processes(function: Callable, items: Sequence, chunk: int) -> list:
    """Forked, which must come before anything touches the GPU."""
    workers = max(1, min(os.cpu_count() or 1, len(items) // chunk))
    with ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as processes:
        return list(processes.map(function, items, chunksize=chunk))


def in_threads(function: Callable, items: Sequence) -> list:
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(function, items))


def drawn(
    characters: Sequence[str], each: int, seed: int, difficulty: Difficulty | None = None
) -> Labelled:
    """``each`` pictures of every character, drawn by as many processes as there are cores."""
    work = partial(_draw_all, each=each, seed=seed, difficulty=difficulty or Difficulty())
    arrays = in_processes(work, characters, 8)
    labels = torch.arange(len(characters)).repeat_interleave(each)
    return Labelled(
        _stack([a for several in arrays for a in several]), labels, list(characters), labels
    )


def _draw_all(character: str, each: int, seed: int, difficulty: Difficulty) -> np.ndarray:
    randoms = (np.random.default_rng([seed, ord(character), i]) for i in range(each))
    faces = SANS if character in SANS_ONLY else FACES
    return np.stack(
        [draw(character, random, difficulty=difficulty, faces=faces) for random in randoms]
    )


def _stack(arrays: Sequence[np.ndarray], side: int = SIDE) -> Tensor:
    """Arrays (side, side, 3) → uint8 (N, 3, side, side)."""
    whole = np.stack(arrays) if arrays else np.empty((0, side, side, 3), np.uint8)
    return torch.from_numpy(whole).permute(0, 3, 1, 2).contiguous()


def shuffled(count: int, batch: int, device: torch.device) -> Iterator[Tensor]:
    """Positions in batches for ever, each position once an epoch; drawn on the device, so nothing
    waits for it.
    """
    left = torch.empty(0, dtype=torch.long, device=device)
    while True:
        while len(left) < batch:
            left = torch.cat([left, torch.randperm(count, device=device)])
        yield left[:batch]
        left = left[batch:]


class Chosen(NamedTuple):
    """Positions of views in a batch: those mixed with another one, then those that are not."""

    mixed: Tensor
    whole: Tensor

    @property
    def all(self) -> Tensor:
        return torch.cat(self)

    def some(self, count: int) -> "Chosen":
        """The first of each, in the same proportion, ``count`` together."""
        mixed = count * len(self.mixed) // (len(self.mixed) + len(self.whole))
        return Chosen(self.mixed[:mixed], self.whole[: count - mixed])


@dataclass
class Views:
    """Crops of photographs, recoloured, the first of them mixed with another one; fixed, so a
    teacher sees each once.

    which: (V,), the photograph; crops: (V, 2, 2), as in ``pictures.crop``; matrix (V, 3, 3) and
    offset (V, 3, 1) of the colours; own: (M, 1, 1, 1), the weight of a mixed view's own crop;
    partner: (M,), the view of the other crop.
    """

    which: Tensor
    crops: Tensor
    matrix: Tensor
    offset: Tensor
    own: Tensor
    partner: Tensor

    @classmethod
    def random(
        cls,
        which: Tensor,
        least: Tensor,
        mix: float = 0.0,
        flip: bool = True,
        strength: float = 0.3,
    ) -> "Views":
        """``least``: (V,), the smallest area of each crop; ``mix``: the share of views that are
        mixed.
        """
        n = len(which)
        device = which.device
        mixed = int(mix * n)
        own = 0.5 + 0.5 * torch.rand(mixed, 1, 1, 1, device=device)
        crops, (matrix, offset) = _crops(n, least, flip), _colours(n, device, strength)
        return cls(which, crops, matrix, offset, own, torch.randint(n, (mixed,), device=device))

    def batches(self, size: int) -> Iterator[Chosen]:
        """Batches for ever, with the share of mixed views that there is; each once an epoch."""
        mixed = len(self.own)
        n = len(self.which)
        share = size * mixed // n
        first, rest = (
            shuffled(k, m, self.which.device)
            for k, m in ((mixed, share), (n - mixed, size - share))
        )
        while True:
            yield Chosen(next(first), mixed + next(rest))

    def at(self, pixels: Tensor, chosen: Chosen, size: int) -> Tensor:
        """Views of ``pixels``, uint8 (N, 3, S, S): float (n, 3, size, size) in [0, 1]."""
        dtype = torch.float16 if self.crops.is_cuda else torch.float32
        which = chosen.all
        mixed = len(chosen.mixed)
        cut = torch.cat([which, self.partner[chosen.mixed]])
        x, others = cut_out(pixels[self.which[cut]], self.crops[cut], size, dtype).tensor_split(
            [len(which)]
        )
        x[:mixed] = torch.lerp(others, x[:mixed], self.own[chosen.mixed])
        return (
            torch.baddbmm(self.offset[which], self.matrix[which], x.flatten(2))
            .clamp_(0, 1)
            .view_as(x)
        )


def _crops(n: int, least: Tensor, flip: bool) -> Tensor:
    """Random boxes of at least this share of the area, half of them mirrored: half-extents and
    centres, (n, 2, 2).
    """
    device = least.device
    area = least + (1 - least) * torch.rand(n, device=device)
    ratio = torch.empty(n, device=device).uniform_(-math.log(4 / 3), math.log(4 / 3)).exp()
    extent = torch.stack([(area * ratio).sqrt(), (area / ratio).sqrt()], 1).clamp(max=1)
    centre = torch.empty(n, 2, device=device).uniform_(-1, 1) * (1 - extent)
    if flip:
        extent[:, 0] *= torch.where(torch.rand(n, device=device) < 0.5, -1.0, 1.0)
    return torch.stack([extent, centre], 2)


@cache
def _luma(device: torch.device) -> Tensor:
    return torch.tensor([0.299, 0.587, 0.114], device=device)


def _colours(
    n: int, device: torch.device, strength: float, grey: float = 0.05
) -> tuple[Tensor, Tensor]:
    """Brightness, contrast, saturation and the channels' gains changed, a few made grey: x → matrix
    · x + offset.
    """

    def factor(amount: float, channels: int = 1) -> Tensor:
        return 1 + torch.empty(n, channels, 1, device=device).uniform_(-amount, amount)

    saturation = torch.where(torch.rand(n, 1, 1, device=device) < grey, 0.0, factor(strength))
    luma = _luma(device).expand(3, 3)
    matrix = saturation * torch.eye(3, device=device) + (1 - saturation) * luma
    gain = factor(strength) * factor(strength / 4, 3)
    contrast = factor(strength)
    return contrast * matrix * gain.mT, (0.5 * (1 - contrast)).expand(n, 3, 1)


def coarse(x: Tensor, side: int = 32, every: int = 4) -> Tensor:
    """Every fourth picture as if it came from a file of ``side``: thumbnails are common in
    practice.
    """
    small = F.interpolate(x[::every], size=side, mode="area")
    x = x.clone()
    x[::every] = F.interpolate(small, size=x.shape[-1], mode="bicubic", align_corners=False).clamp(
        0, 1
    )
    return x


def inverted(x: Tensor, share: float = 0.3) -> Tensor:
    """A share of the pictures as negatives."""
    return torch.where(torch.rand(len(x), 1, 1, 1, device=x.device) < share, 1 - x, x)
