"""Pictures for pre-training: read or drawn once into uint8 tensors, cut and recoloured in batches on the device."""

import io
import math
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from safecl.streams.crops import cut_out
from safecl.streams.drawing import SIDE, Difficulty, check_fonts, draw
from safecl.streams.images import Transform, plain_view

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp")
LARGE = 2 * SIDE  # a photograph is kept at this side if it is as large, and at SIDE if not


@dataclass
class Labelled:
    """pixels: uint8 (N, 3, S, S); labels: int64 (N,), positions in ``classes``; groups: (N,), the folder of each."""

    pixels: Tensor
    labels: Tensor
    classes: list[str]
    groups: Tensor

    def to(self, device: torch.device) -> "Labelled":
        return Labelled(self.pixels.to(device), self.labels.to(device), self.classes, self.groups.to(device))

    def where(self, chosen: Tensor) -> "Labelled":
        return replace(self, pixels=self.pixels[chosen], labels=self.labels[chosen], groups=self.groups[chosen])


@dataclass
class Photographs:
    """pixels: uint8 (N, 3, LARGE, LARGE), small pictures enlarged; labels: int64 (N,), -1 where there is none.

    kinds: (N,), 0 for small pictures, 1 for large ones, 2 for mosaics of small ones.
    """

    pixels: Tensor
    labels: Tensor
    kinds: Tensor

    def to(self, device: torch.device) -> "Photographs":
        return Photographs(self.pixels.to(device), self.labels.to(device), self.kinds.to(device))

    @property
    def classes(self) -> int:
        """At least 1: a linear head needs an output."""
        return max(1, int(self.labels.max()) + 1)


def read_photographs(paths: Sequence[Path], most: int | None = None) -> Photographs:
    """Folders (all below them) and npz shards with labels, as squares; a mosaic for each four small pictures.

    A mosaic is as large as a large photograph and as sharp, which a small photograph enlarged is not.
    ``most``: the first so many of each path.
    """
    found = [source for path in paths for source in _sources(path)[:most]]
    if not found:
        raise SystemExit(f"There are no pictures in {', '.join(map(str, paths))}.")
    arrays = in_threads(_square, [picture for picture, _ in found])
    labels = torch.tensor([label for _, label in found])
    small = [array for array in arrays if len(array) == SIDE]
    kinds = torch.tensor([int(len(array) == LARGE) for array in arrays])
    mosaics = mosaic(_stack(small[: len(small) // 4 * 4])) if len(small) >= 4 else torch.empty(0, 3, LARGE, LARGE)
    pixels = torch.cat([_stack(in_threads(_enlarged, arrays)), mosaics.to(torch.uint8)])
    none = torch.full((len(mosaics),), -1)
    return Photographs(pixels, torch.cat([labels, none]), torch.cat([kinds, none + 3]))


def _sources(path: Path) -> list[tuple[Path | bytes, int]]:
    """Pictures, each with its label or -1."""
    if path.suffix != ".npz":
        return [(file, -1) for file in sorted(path.rglob("*")) if file.suffix.lower() in SUFFIXES]
    shard = np.load(path)  # ``bytes``: encoded pictures end to end; ``off``: offsets; ``y``: labels
    blob, offsets = shard["bytes"].tobytes(), shard["off"]
    return [(blob[start:end], int(y)) for (start, end), y in zip(pairwise(offsets), shard["y"], strict=True)]


def _square(source: Path | bytes) -> np.ndarray:
    image = Image.open(io.BytesIO(source) if isinstance(source, bytes) else source).convert("RGB")
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    size = LARGE if side >= LARGE else SIDE
    return np.asarray(image.resize((size, size), Image.Resampling.BICUBIC, box=(left, top, left + side, top + side)))


def _enlarged(array: np.ndarray) -> np.ndarray:
    if len(array) == LARGE:
        return array
    return np.asarray(Image.fromarray(array).resize((LARGE, LARGE), Image.Resampling.BICUBIC))


def mosaic(pixels: Tensor) -> Tensor:
    """Pictures (4n, 3, S, S) in squares of four: (n, 3, 2S, 2S)."""
    side = pixels.shape[-1]
    return pixels.view(-1, 2, 2, 3, side, side).permute(0, 3, 1, 4, 2, 5).reshape(-1, 3, 2 * side, 2 * side)


def read_labelled(folder: Path, size: int, classes: list[str] | None = None) -> Labelled:
    """Pictures below ``folder`` as the package sees them at ``size``; a picture's class is the name of its folder."""
    files = [file for file in sorted(folder.rglob("*")) if file.suffix.lower() in SUFFIXES]
    places = sorted({file.parent for file in files})
    classes = sorted({place.name for place in places}) if classes is None else classes
    numbers = {name: number for number, name in enumerate(classes)}
    position = {place: number for number, place in enumerate(places)}
    pixels = in_threads(partial(_plain, transform=Transform(size=size)), files)
    labels, groups = (
        [table(file) for file in files] for table in (lambda f: numbers[f.parent.name], lambda f: position[f.parent])
    )
    return Labelled(torch.stack(pixels), torch.tensor(labels), classes, torch.tensor(groups))


def _plain(file: Path, transform: Transform) -> Tensor:
    with Image.open(file) as image:
        return plain_view(image.convert("RGB"), transform)


def in_threads(function: Callable, items: Sequence) -> list:
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(function, items))


def drawn(characters: Sequence[str], each: int, seed: int, difficulty: Difficulty | None = None) -> Labelled:
    """``each`` pictures of every character, drawn by as many processes as there are cores."""
    check_fonts()
    work = partial(_draw_all, each=each, seed=seed, difficulty=difficulty or Difficulty())
    workers = min(os.cpu_count() or 1, len(characters))
    with ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as processes:
        arrays = list(processes.map(work, characters, chunksize=8))
    labels = torch.arange(len(characters)).repeat_interleave(each)
    return Labelled(_stack([a for several in arrays for a in several]), labels, list(characters), labels)


def _draw_all(character: str, each: int, seed: int, difficulty: Difficulty) -> np.ndarray:
    randoms = (np.random.default_rng([seed, ord(character), i]) for i in range(each))
    return np.stack([draw(character, random, difficulty=difficulty) for random in randoms])


def _stack(arrays: Sequence[np.ndarray]) -> Tensor:
    return torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).contiguous()


def shuffled(count: int, batch: int, device: torch.device) -> Iterator[Tensor]:
    """Positions in batches for ever, each position once an epoch; drawn on the device, so nothing waits for it."""
    left = torch.empty(0, dtype=torch.long, device=device)
    while True:
        while len(left) < batch:
            left = torch.cat([left, torch.randperm(count, device=device)])
        yield left[:batch]
        left = left[batch:]


@dataclass
class Views:
    """Crops of photographs, some mixed with another one, recoloured: fixed, so that a teacher sees each only once.

    which: (V,), the photograph; crops: (V, 2, 2), as in ``safecl.streams.crops``; own: (V, 1, 1, 1), the weight of the
    picture; partner: (V,), the view whose crop the rest is; matrix (V, 3, 3) and offset (V, 3, 1) of the colours.
    """

    which: Tensor
    crops: Tensor
    own: Tensor
    partner: Tensor
    matrix: Tensor
    offset: Tensor

    @classmethod
    def random(
        cls, which: Tensor, least: Tensor, mix: float = 0.0, flip: bool = True, strength: float = 0.3
    ) -> "Views":
        """``least``: (V,), the smallest area of each crop; ``mix``: the share of views that are mixed."""
        n, device = len(which), which.device
        own = torch.where(torch.rand(n, device=device) < mix, 0.5 + 0.5 * torch.rand(n, device=device), 1.0)
        matrix, offset = _colours(n, device, strength)
        crops, partner = _crops(n, least, flip), torch.randint(n, (n,), device=device)
        return cls(which, crops, own.view(n, 1, 1, 1), partner, matrix, offset)

    def at(self, pixels: Tensor, chosen: Tensor, size: int) -> Tensor:
        """Views ``chosen`` (n,) of ``pixels``, uint8 (N, 3, S, S): float (n, 3, size, size) in [0, 1]."""
        dtype = torch.float16 if self.crops.is_cuda else torch.float32
        both = torch.cat([chosen, self.partner[chosen]])
        x, other = cut_out(pixels[self.which[both]], self.crops[both], size, dtype).chunk(2)
        x = torch.lerp(other, x, self.own[chosen])
        return torch.baddbmm(self.offset[chosen], self.matrix[chosen], x.flatten(2)).clamp_(0, 1).view_as(x)


def _crops(n: int, least: Tensor, flip: bool) -> Tensor:
    """Random boxes of at least this share of the area, half of them mirrored: half-extents and centres, (n, 2, 2)."""
    device = least.device
    area = least + (1 - least) * torch.rand(n, device=device)
    ratio = torch.empty(n, device=device).uniform_(-math.log(4 / 3), math.log(4 / 3)).exp()
    extent = torch.stack([(area * ratio).sqrt(), (area / ratio).sqrt()], 1).clamp(max=1)
    centre = torch.empty(n, 2, device=device).uniform_(-1, 1) * (1 - extent)
    if flip:
        extent[:, 0] *= torch.where(torch.rand(n, device=device) < 0.5, -1.0, 1.0)
    return torch.stack([extent, centre], 2)


def _colours(n: int, device: torch.device, strength: float, grey: float = 0.05) -> tuple[Tensor, Tensor]:
    """Brightness, contrast, saturation and the channels' gains changed, a few made grey: x → matrix · x + offset."""

    def factor(amount: float, channels: int = 1) -> Tensor:
        return 1 + torch.empty(n, channels, 1, device=device).uniform_(-amount, amount)

    saturation = torch.where(torch.rand(n, 1, 1, device=device) < grey, 0.0, factor(strength))
    luma = torch.tensor([0.299, 0.587, 0.114], device="cpu").to(device, non_blocking=True).expand(3, 3)
    matrix = saturation * torch.eye(3, device=device) + (1 - saturation) * luma
    gain, contrast = factor(strength) * factor(strength / 4, 3), factor(strength)
    return contrast * matrix * gain.mT, (0.5 * (1 - contrast)).expand(n, 3, 1)


def coarse(x: Tensor, side: int = 32, every: int = 4) -> Tensor:
    """Every fourth picture as if it came from a file of ``side``: thumbnails are common in practice."""
    small = F.interpolate(x[::every], size=side, mode="area")
    x = x.clone()
    x[::every] = F.interpolate(small, size=x.shape[-1], mode="bicubic", align_corners=False).clamp(0, 1)
    return x


def inverted(x: Tensor, share: float = 0.3) -> Tensor:
    """A share of the pictures as negatives."""
    return torch.where(torch.rand(len(x), 1, 1, 1, device=x.device) < share, 1 - x, x)
