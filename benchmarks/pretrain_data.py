"""Pictures for pre-training: read or drawn once into one uint8 tensor, then augmented in batches on the device."""

import io
import math
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from safecl.streams.drawing import SIDE, Difficulty, check_fonts, draw

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp")


@dataclass
class Labelled:
    """pixels: uint8 (N, 3, SIDE, SIDE); labels: int64 (N,), positions in ``classes``."""

    pixels: Tensor
    labels: Tensor
    classes: list[str]

    def to(self, device: torch.device) -> "Labelled":
        return Labelled(self.pixels.to(device), self.labels.to(device), self.classes)


def read(paths: Sequence[Path], classes: list[str] | None = None, per_class: int | None = None) -> Labelled:
    """Folders of class folders and npz shards together; ``classes`` fixes the numbering (others are left out)."""
    found: dict[str, list[Path | bytes]] = {}
    for path in paths:
        for label, source in _shard(path) if path.suffix == ".npz" else _folder(path):
            found.setdefault(label, []).append(source)
    if not found:
        raise SystemExit(f"There are no pictures in {', '.join(map(str, paths))}.")
    names = sorted(found) if classes is None else classes
    items = [(source, i) for i, name in enumerate(names) for source in found.get(name, [])[:per_class]]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        arrays = list(threads.map(_decode, [source for source, _ in items], chunksize=64))
    return Labelled(_stack(arrays), torch.tensor([label for _, label in items]), names)


def _folder(path: Path) -> Iterator[tuple[str, Path]]:
    for folder in sorted(p for p in path.iterdir() if p.is_dir()):
        for file in sorted(folder.iterdir()):
            if file.suffix.lower() in SUFFIXES:
                yield folder.name, file


def _shard(path: Path) -> Iterator[tuple[str, bytes]]:
    """npz arrays: ``bytes`` (encoded pictures end to end), ``off`` (offsets), ``y`` (labels)."""
    shard = np.load(path)
    blob, offsets = shard["bytes"].tobytes(), shard["off"]
    for i, label in enumerate(shard["y"]):
        yield f"{int(label):03d}", blob[offsets[i] : offsets[i + 1]]


def _decode(source: Path | bytes) -> np.ndarray:
    image = Image.open(io.BytesIO(source) if isinstance(source, bytes) else source).convert("RGB")
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    box = (left, top, left + side, top + side)
    return np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BICUBIC, box=box))


def drawn(characters: Sequence[str], each: int, seed: int) -> Labelled:
    """``each`` pictures of every character, drawn by as many processes as there are cores."""
    check_fonts()
    work = partial(_draw_all, each=each, seed=seed)
    workers = min(os.cpu_count() or 1, len(characters))
    with ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as processes:
        arrays = list(processes.map(work, characters, chunksize=8))
    labels = torch.arange(len(characters)).repeat_interleave(each)
    return Labelled(_stack([a for several in arrays for a in several]), labels, list(characters))


def _draw_all(character: str, each: int, seed: int) -> np.ndarray:
    return np.stack(
        [
            draw(character, np.random.default_rng([seed, ord(character), i]), difficulty=Difficulty())
            for i in range(each)
        ]
    )


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


def random_crops(pixels: Tensor, least: float, flip: bool) -> Tensor:
    """A random crop of at least this share of the area, perhaps mirrored: uint8 (n, 3, S, S) → float in [0, 1]."""
    n, device = len(pixels), pixels.device
    area = torch.empty(n, device=device).uniform_(least, 1)
    ratio = torch.empty(n, device=device).uniform_(-math.log(4 / 3), math.log(4 / 3)).exp()
    width, height = (area * ratio).sqrt().clamp(max=1), (area / ratio).sqrt().clamp(max=1)
    centre = torch.empty(n, 2, device=device).uniform_(-1, 1)
    theta = torch.zeros(n, 2, 3, device=device)
    theta[:, 0, 0] = width * (torch.where(torch.rand(n, device=device) < 0.5, -1.0, 1.0) if flip else 1.0)
    theta[:, 1, 1] = height
    theta[:, 0, 2], theta[:, 1, 2] = centre[:, 0] * (1 - width), centre[:, 1] * (1 - height)
    grid = F.affine_grid(theta, [n, 3, SIDE, SIDE], align_corners=False)
    return F.grid_sample(pixels.float() / 255, grid, padding_mode="border", align_corners=False)


def mixed(x: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Mixup of half of the batch and cutmix of the rest with the picture before; the own weight of each: (n,)."""
    n, device, half = len(x), x.device, len(x) // 2
    weight = torch.where(torch.rand(n, device=device) < share, torch.rand(n, device=device), 1.0)
    cut = _rectangles(1 - weight[half:], torch.ones(n - half, device=device))
    weight = torch.cat([weight[:half], 1 - cut.float().mean((1, 2, 3))])
    keep = torch.cat([weight[:half, None, None, None].expand(-1, 1, SIDE, SIDE), 1 - cut.float()])
    return torch.lerp(x.roll(1, 0), x, keep), weight


def recoloured(x: Tensor, strength: float = 0.4, grey: float = 0.1, inverted: float = 0.0) -> Tensor:
    """Brightness, contrast, saturation and the three channels' gains changed; some made grey, some inverted."""
    n, device = len(x), x.device

    def factor(amount: float, channels: int = 1) -> Tensor:
        return 1 + torch.empty(n, channels, 1, 1, device=device).uniform_(-amount, amount)

    x = x * factor(strength) * factor(strength / 4, 3)
    mean = x.mean((1, 2, 3), keepdim=True)
    x = mean + (x - mean) * factor(strength)
    plain = 0.299 * x[:, :1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:]  # a tensor of weights would wait for the device
    saturation = torch.where(torch.rand(n, 1, 1, 1, device=device) < grey, 0.0, factor(strength))
    x = (plain + (x - plain) * saturation).clamp(0, 1)
    return torch.where(torch.rand(n, 1, 1, 1, device=device) < inverted, 1 - x, x) if inverted else x


def coarse(x: Tensor, every: int = 3) -> Tensor:
    """Every third picture as if it came from a file of half the side or less; thumbnails are common in practice."""
    small = F.interpolate(x[::every], size=SIDE // 2, mode="area")
    x = x.clone()
    x[::every] = F.interpolate(small, size=SIDE, mode="bicubic", align_corners=False).clamp(0, 1)
    return x


def erased(x: Tensor, share: float = 0.25) -> Tensor:
    """A grey rectangle of up to a quarter of the area on a share of the pictures."""
    n, device = len(x), x.device
    area = torch.where(torch.rand(n, device=device) < share, torch.rand(n, device=device) * 0.25, 0.0)
    ratio = torch.empty(n, device=device).uniform_(-1, 1).exp()
    return torch.where(_rectangles(area, ratio), 0.5, x)


def _rectangles(area: Tensor, ratio: Tensor) -> Tensor:
    """Random rectangles of these shares of the area, cut at the border: bool (n, 1, SIDE, SIDE)."""
    n, device = len(area), area.device
    half_width, half_height = (area * ratio).sqrt() * SIDE / 2, (area / ratio).sqrt() * SIDE / 2
    centre = torch.rand(n, 2, device=device) * SIDE
    along = torch.arange(SIDE, device=device) + 0.5
    inside_x = (along - centre[:, :1]).abs() < half_width[:, None]
    inside_y = (along - centre[:, 1:]).abs() < half_height[:, None]
    return (inside_y[:, :, None] & inside_x[:, None, :])[:, None]
