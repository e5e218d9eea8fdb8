"""Pictures per second, read in four ways, in one run and on the same files.

    python benchmarks/reading.py [--pictures 600] [--side 500] [--size 224] [--workers N] [--rounds 5] [--json FILE]

- plain: torchvision's ImageFolder and DataLoader (decode, RandomResizedCrop, flip, ToTensor), persistent workers;
- decode each epoch: the same files through ``batches`` without a cache, augmented on the device;
- cached: canvases out of the memory-mapped cache, as uint8;
- cached + augment: those, moved to the device and augmented there in one call a batch.

Every way delivers whole batches on the device; ``cached`` alone does not augment them, so it is the price of reading.
The first epoch, in which the first cached way fills the cache, is timed on its own. After it the ways take turns, and
the median over the rounds is given with its range and with the median and the least of the ratios to plain.
"""

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from statistics import median

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

from safecl.streams.pictures.cache import cached
from safecl.streams.pictures.crop import augment
from safecl.streams.pictures.files import File, FilePictures
from safecl.streams.pictures.images import Pictures, Transform
from safecl.streams.pictures.load import batches, readers

Epoch = Callable[[int], Iterator[Tensor]]


def draw(folder: Path, number: int, side: int) -> list[Path]:
    """JPEGs of ``side`` × 3/4 ``side`` with detail at every scale, about as large as photographs."""
    random = np.random.default_rng(0)
    paths = []
    for i in range(number):
        path = folder / f"class{i % 4}" / f"{i:05d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        size = (side, side * 3 // 4)
        layers = [random.integers(0, 256, (k * 3 // 4, k, 3), dtype=np.uint8) for k in (8, 32, 128)]
        mixed = sum(np.asarray(Image.fromarray(a).resize(size), dtype=np.float32) / 3 for a in layers)
        Image.fromarray(np.asarray(mixed).astype(np.uint8)).save(path, quality=90)
        paths.append(path)
    return paths


def plain_loader(folder: Path, transform: Transform, batch: int, workers: int, device: torch.device) -> Epoch:
    steps = transforms.Compose(
        [
            transforms.RandomResizedCrop(transform.size, transform.scale, transform.ratio),
            transforms.RandomHorizontalFlip(transform.flip),
            transforms.ToTensor(),
        ]
    )
    loader = DataLoader(
        datasets.ImageFolder(str(folder), steps),
        batch,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=device.type == "cuda",
    )
    return lambda _: (images.to(device, non_blocking=True) for images, _ in loader)


def our_loader(
    pictures: Pictures, transform: Transform, batch: int, workers: int, device: torch.device, augmented: bool
) -> Epoch:
    def epoch(number: int) -> Iterator[Tensor]:
        generator = torch.Generator().manual_seed(number)
        order = torch.randperm(len(pictures), generator=generator).tolist()
        for read in batches(pictures, order, batch, "canvas", transform, workers):
            canvas = read.pictures.to(device, non_blocking=True)
            assert read.shapes is not None
            yield augment(canvas, read.shapes, transform, generator) if augmented else canvas

    return epoch


def rate(epoch: Epoch, rounds: Iterator[int], expected: int, device: torch.device, least: float) -> float:
    """Pictures per second over whole epochs, as many as fill ``least`` seconds."""
    seen, start = 0, time.perf_counter()
    while True:
        read = sum(len(images) for images in epoch(next(rounds)))
        assert read == expected
        seen += read
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        spent = time.perf_counter() - start
        if spent >= least:
            return seen / spent


def measure(args: argparse.Namespace) -> list[dict[str, object]]:
    transform = Transform(size=args.size)
    devices = [torch.device("cpu")] + ([torch.device("cuda")] if torch.cuda.is_available() else [])
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(dir=args.scratch) as scratch:
        top = Path(scratch)
        paths = draw(top / "pictures", args.pictures, args.side)
        for device in devices:
            files = FilePictures([File.at(p) for p in paths], [p.parent.name for p in paths])
            stored = cached(files, transform, top / f"cache-{device.type}")
            common = (transform, args.batch, args.workers, device)
            # Opening CUDA and the first kernels are nobody's reading.
            augment(torch.zeros(2, 3, 8, 8, device=device), torch.ones(2, 3), transform, torch.Generator())
            ways = {
                "plain": plain_loader(top / "pictures", *common),
                "decode each epoch": our_loader(files, *common, augmented=True),
                "cached": our_loader(stored, *common, augmented=False),
                "cached + augment": our_loader(stored, *common, augmented=True),
            }
            rounds = count()
            first = {name: rate(epoch, rounds, args.pictures, device, 0) for name, epoch in ways.items()}
            # In turn, so that whatever else the machine does falls on all of them.
            later = [
                {name: rate(epoch, rounds, args.pictures, device, args.least) for name, epoch in ways.items()}
                for _ in range(args.rounds)
            ]
            for name in ways:
                found = [turn[name] for turn in later]
                ratios = [turn[name] / turn["plain"] for turn in later]
                rows.append(
                    {"device": device.type, "way": name, "first": first[name], "later": found, "ratios": ratios}
                )
                spread = f"{min(found):.0f}-{max(found):.0f}"
                print(
                    f"{device.type:5} {name:18} {first[name]:9.0f} {median(found):9.0f} {spread:>15} "
                    f"{median(ratios):7.1f} {min(ratios):7.1f}",
                    flush=True,
                )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (
        ("pictures", 600),
        ("side", 500),
        ("size", 224),
        ("batch", 48),
        ("workers", readers()),
        ("rounds", 5),
    ):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--least", type=float, default=1.0, help="seconds to time each way in a round")
    parser.add_argument("--scratch", type=Path, default=None, help="where to write the pictures and the cache")
    parser.add_argument("--json", type=Path, default=None, help="also write the figures there")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{args.pictures} JPEGs of {args.side} px to {args.size} px, batch {args.batch}, {args.workers} workers")
    print(f"{'':5} {'pictures / s':18} {'epoch 1':>9} {'median':>9} {'range':>15} {'× plain':>7} {'least':>7}")
    rows = measure(args)
    if args.json:
        args.json.write_text(json.dumps({**vars(args), "json": None, "scratch": None, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
