"""What batched augmentation on the device costs in accuracy, against torchvision's transforms picture by picture.

    python benchmarks/augmentation.py FOLDER [--classes 20] [--seeds 0,1,2] [--plain] [key=value …]

Trains RanPAC's first session twice for each seed, on the same pictures with the same settings: once on crops cut by
``safecl.streams.images.augment`` out of squashed canvases, once on crops that torchvision's RandomResizedCrop and
RandomHorizontalFlip cut out of the decoded picture on the CPU. With --plain that second way is also in float32 and
without recorded steps: then it is all that makes training fast that is put to the test. FOLDER holds class folders,
with or without train/test.
"""

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torchvision import transforms

from safecl.backbone import load_backbone
from safecl.engine import device_loader
from safecl.engine.progress import Quiet
from safecl.engine.run import run
from safecl.experiments.config import load
from safecl.experiments.launch import choose_precision, make_accelerator
from safecl.methods import make_method
from safecl.streams.catalog import open_stream
from safecl.streams.images import Pictures, Transform, pixels
from safecl.streams.stream import Part, Stream


class Torchvision(Pictures):
    """Pictures whose canvas is a fresh random crop; the device has nothing left to do but to take it as it is."""

    def __init__(self, pictures: Pictures, transform: Transform) -> None:
        self.pictures, self.labels = pictures, pictures.labels
        crop = transforms.RandomResizedCrop(transform.size, transform.scale, transform.ratio)
        self.augment = transforms.Compose([crop, transforms.RandomHorizontalFlip(transform.flip)])

    def decode(self, index: int) -> Image.Image:
        return self.pictures.decode(index)

    def canvas(self, indices: Sequence[int], transform: Transform) -> tuple[Tensor, Tensor]:
        crops = [pixels(self.augment(self.decode(i))) for i in indices]
        return torch.stack(crops), torch.ones(len(crops))


def accuracy(folder: Path, classes: int, seed: int, words: list[str], by_torchvision: bool) -> float:
    settings = load("ranpac", [f"stream=folder:{folder}", f"seed={seed}", *words])
    accelerator = make_accelerator(settings.device)
    precision = choose_precision(settings.precision, accelerator.device)
    backbone = load_backbone(settings.backbone).to(accelerator.device, precision)
    options = {"first": classes, "step": classes, "cache": False} | settings.stream.options()
    whole = open_stream(settings.stream.name, size=backbone.size, order_seed=1993 + seed, **options)
    train, test, transform = whole.open(1).train, whole.test(1), whole.transform
    if by_torchvision:
        train = Torchvision(train, transform)
        transform = replace(transform, margin=1.0, scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=0.0)
    part = Part("one", tuple(dict.fromkeys(train.labels)), train, test)
    stream = Stream("one", [part], transform=transform)
    method = make_method(settings.method, backbone, settings.pet, settings.ridge, seed)
    torch.manual_seed(seed)
    with tempfile.TemporaryDirectory() as place:
        summary = run(accelerator, method, stream, settings.train, transform, seed, Path(place) / "run", Quiet(), {})
    return 100 * float(summary["final"]["ranpac"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--plain", action="store_true", help="the second way in float32, step by step")
    parser.add_argument("words", nargs="*", help="key=value words for every run")
    options = parser.parse_intermixed_args()
    slow = [*options.words, "precision=fp32", "train.graphs=false"] if options.plain else options.words
    device_loader.held_bytes = lambda device: 0  # canvases that are held would be one crop for ever
    rows = []
    for seed in map(int, options.seeds.split(",")):
        pair = [
            accuracy(options.folder, options.classes, seed, words, way)
            for words, way in ((options.words, False), (slow, True))
        ]
        rows.append(pair)
        print(f"seed {seed}: on the device {pair[0]:.2f}, torchvision {pair[1]:.2f}", flush=True)
    gaps = [ours - theirs for ours, theirs in rows]
    spread = statistics.stdev(gaps) if len(gaps) > 1 else 0.0
    print(f"difference {statistics.mean(gaps):+.2f} ± {spread:.2f} points")


if __name__ == "__main__":
    main()
