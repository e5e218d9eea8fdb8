"""Batched augmentation on the device against torchvision's transforms picture by picture: sharpness and accuracy.

    python benchmarks/augmentation.py sharpness [--folder FOLDER] [--size 224] [--pictures 24]
    python benchmarks/augmentation.py accuracy FOLDER [--classes 20] [--seeds 0,1,2] [--plain] [key=value …]

``sharpness`` cuts the same boxes from canvases of 1, 1.5 and 2 times the resized side and, by torchvision with
antialiasing, from the pictures themselves: boxes of 5 %, 20 % and 100 % of the area, and of 5 to 100 % as in training.
It prints ours over torchvision's: the mean step between neighbouring pixels, and the gradient energy (the mean of the
squared steps). Without a folder the pictures are the two photographs of scikit-learn (640 × 427) and textures whose
spectrum falls as 1/f, sharp to the last pixel.

``accuracy`` trains RanPAC's first session twice for each seed, on the same pictures with the same settings: once on
crops cut on the device out of canvases, once on crops that torchvision's RandomResizedCrop and RandomHorizontalFlip cut
out of the decoded picture on the CPU. With --plain that second way is also in float32 and without recorded steps: then
all that makes training fast is put to the test. FOLDER holds class folders, with or without train/test.
"""

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from torch import Tensor
from torchvision import transforms
from torchvision.transforms.v2.functional import resized_crop

from safecl.backbone.load import load_backbone
from safecl.engine import device_loader
from safecl.engine.device import choose_precision, make_accelerator
from safecl.engine.run import run
from safecl.experiments.config import load
from safecl.methods.catalog import make_method
from safecl.streams.catalog import open_stream
from safecl.streams.pictures.crop import cut_out
from safecl.streams.pictures.images import Pictures, Transform, canvas_view, pixels, spread
from safecl.streams.settings import parse_stream, short_form, with_words
from safecl.streams.sources.folder import read_folder
from safecl.streams.stream import Part, Stream

AREAS = {"5 %": (0.05, 0.05), "20 %": (0.2, 0.2), "100 %": (1.0, 1.0), "5-100 %": (0.05, 1.0)}
FACTORS = (1.0, 1.5, 2.0)


def texture(width: int, height: int, random: np.random.Generator) -> Image.Image:
    """Noise whose amplitude falls as 1/f, the spectrum of photographs."""
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
    frequency[0, 0] = 1 / max(width, height)
    planes = []
    for _ in range(3):
        phase = random.standard_normal((2, *frequency.shape))
        plane = np.fft.irfft2((phase[0] + 1j * phase[1]) / frequency, (height, width))
        planes.append(128 + 45 * plane / plane.std())
    return Image.fromarray(np.stack(planes, axis=-1).clip(0, 255).astype(np.uint8))


def boxes(
    width: int, height: int, areas: tuple[float, float], number: int, random: np.random.Generator
) -> list[tuple[int, ...]]:
    """(left, top, width, height) in pixels, of aspects between 3/4 and 4/3; or the whole picture."""
    if min(areas) == 1:
        return [(0, 0, width, height)]
    found: list[tuple[int, ...]] = []
    while len(found) < number:
        area = random.uniform(*areas)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = (round(math.sqrt(area * width * height * r)) for r in (ratio, 1 / ratio))
        if w <= width and h <= height:
            found.append((int(random.integers(width - w + 1)), int(random.integers(height - h + 1)), w, h))
    return found


def steps(images: Tensor) -> np.ndarray:
    """Mean step between neighbouring pixels, and mean squared step."""
    across, down = images[..., 1:] - images[..., :-1], images[..., 1:, :] - images[..., :-1, :]
    return np.array([(across.abs().mean() + down.abs().mean()).item(), (across**2).mean() + (down**2).mean()])


def ratios(images: Sequence[Image.Image], size: int, side: int, areas: tuple[float, float]) -> np.ndarray:
    """Ours over torchvision's: step and energy."""
    random, ours, theirs = np.random.default_rng(1), [], []
    for image in images:
        square, shape = canvas_view(image, side)
        width, height = image.size
        for left, top, w, h in boxes(width, height, areas, 8, random):
            crop = torch.tensor([[w / width, (2 * left + w) / width], [h / height, (2 * top + h) / height]])
            crop = crop * shape[1:, None] - torch.tensor([0.0, 1.0])
            ours.append(steps(cut_out(square[None], crop[None], size)))
            theirs.append(
                steps(resized_crop(pixels(image).float() / 255, top, left, h, w, [size, size], antialias=True))
            )
    return np.asarray(np.mean(ours, axis=0) / np.mean(theirs, axis=0))


def sharpness(folder: Path | None, size: int, number: int) -> None:
    transform, random = Transform(size=size), np.random.default_rng(0)
    if folder is not None:
        own = read_folder(folder, test_fraction=0).train
        sets = {folder.name: [own.decode(i) for i in spread(len(own), number)]}
    else:
        sets = {"photographs, 640 × 427": [Image.fromarray(array) for array in load_sample_images().images]}
        for width, height in ((400, 300), (500, 375), (640, 480), (1600, 1200)):
            sets[f"texture, {width} × {height}"] = [texture(width, height, random) for _ in range(4)]
    print(f"{'step / energy, ours over torchvision':36} {'canvas':>10}" + "".join(f"{area:>14}" for area in AREAS))
    for name, images in sets.items():
        for factor in FACTORS:
            side = int(transform.resize * factor)
            found = [ratios(images, size, side, areas) for areas in AREAS.values()]
            cells = "".join(f"{step:>7.2f} / {energy:.2f}" for step, energy in found)
            print(f"{name:36} {factor:>4}× {side:>4}{cells}", flush=True)
    print(f"\n{'ms to cut a crop on this CPU':36} {torch.get_num_threads()} thread(s), batches of 48")
    for factor in FACTORS:
        side = int(transform.resize * factor)
        canvas = torch.randint(0, 256, (48, 3, side, side), dtype=torch.uint8)
        crops = torch.tensor([[0.6, 0.0], [0.7, 0.1]]).expand(48, 2, 2)
        spent = []
        for _ in range(15):
            began = time.perf_counter()
            cut_out(canvas, crops, size)
            spent.append((time.perf_counter() - began) / 48)
        print(f"{'':36} {factor:>4}× {side:>4} {1000 * min(spent):>10.2f}")


class Torchvision(Pictures):
    """Pictures whose canvas is a random crop that torchvision has cut; the device only has to take it as it is."""

    def __init__(self, pictures: Pictures, transform: Transform) -> None:
        self.pictures, self.labels = pictures, pictures.labels
        crop = transforms.RandomResizedCrop(transform.size, transform.scale, transform.ratio)
        self.augment = transforms.Compose([crop, transforms.RandomHorizontalFlip(transform.flip)])

    def decode(self, index: int) -> Image.Image:
        return self.pictures.decode(index)

    def side(self, transform: Transform) -> int:
        return transform.size

    def canvas(self, indices: Sequence[int], transform: Transform) -> tuple[Tensor, Tensor]:
        crops = [pixels(self.augment(self.decode(i))) for i in indices]
        return torch.stack(crops), torch.ones(len(crops), 3)


def accuracy(folder: Path, classes: int, seed: int, words: list[str], by_torchvision: bool) -> float:
    own = [word for word in words if word.startswith("stream.")]
    settings = load("ranpac", [f"seed={seed}", *(word for word in words if word not in own)])
    accelerator = make_accelerator(settings.device)
    precision = choose_precision(settings.precision, accelerator.device)
    backbone = load_backbone(settings.backbone).to(accelerator.device, precision)
    defaults = {"first": classes, "step": classes, "order_seed": 1993 + seed, "cache": False}
    chosen = parse_stream(with_words({**short_form(f"folder:{folder}"), **defaults}, own))
    whole = open_stream(chosen, size=backbone.size)
    train, test, transform = whole.open(1).train, whole.test(1), whole.transform
    if by_torchvision:
        train = Torchvision(train, transform)
        transform = replace(transform, margin=1.0, scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=0.0)
    part = Part("one", tuple(dict.fromkeys(train.labels)), train, test)
    stream = Stream("one", [part], transform=transform)
    method = make_method(settings.method, backbone, seed)
    torch.manual_seed(seed)
    with tempfile.TemporaryDirectory() as place:
        summary = run(method, stream, Path(place) / "run", accelerator=accelerator, train=settings.train, seed=seed)
    return 100 * float(summary["final"]["ranpac"])


def accuracies(folder: Path, classes: int, seeds: Sequence[int], plain: bool, words: list[str]) -> None:
    slow = [*words, "precision=fp32", "train.graphs=false"] if plain else words
    device_loader.held_bytes = lambda device: 0  # a crop that is held would be the same in every epoch
    rows = []
    for seed in seeds:
        pair = [accuracy(folder, classes, seed, some, way) for some, way in ((words, False), (slow, True))]
        rows.append(pair)
        print(f"seed {seed}: on the device {pair[0]:.2f}, torchvision {pair[1]:.2f}", flush=True)
    gaps = [ours - theirs for ours, theirs in rows]
    spread = statistics.stdev(gaps) if len(gaps) > 1 else 0.0
    print(f"difference {statistics.mean(gaps):+.2f} ± {spread:.2f} points")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    sharp = commands.add_parser("sharpness")
    sharp.add_argument("--folder", type=Path, help="class folders of pictures to take instead")
    sharp.add_argument("--size", type=int, default=224, help="side of the inputs")
    sharp.add_argument("--pictures", type=int, default=24, help="how many of the folder")
    trained = commands.add_parser("accuracy")
    trained.add_argument("folder", type=Path)
    trained.add_argument("--classes", type=int, default=20)
    trained.add_argument("--seeds", default="0,1,2")
    trained.add_argument("--plain", action="store_true", help="the second way in float32, step by step")
    options, words = parser.parse_known_args()  # words for every run may stand anywhere
    if options.command == "sharpness" or not all("=" in word and not word.startswith("-") for word in words):
        parser.parse_args()  # says what is wrong
    if options.command == "sharpness":
        sharpness(options.folder, options.size, options.pictures)
    else:
        seeds = [int(seed) for seed in options.seeds.split(",")]
        accuracies(options.folder, options.classes, seeds, options.plain, words)


if __name__ == "__main__":
    main()
