"""What a ridge head should read of a frozen backbone: blocks, a projection for each or one for all,
and how much each counts.

    python benchmarks/blocks.py --assets DIR --features DIR --out blocks.jsonl

A ridge head on features of the untuned backbone, as ``ranpac`` with ``pet=none`` has it, learns ten
sessions of classes (PACS: its four domains); two thirds of the pictures are learned, the others
tested. Features (CLS of the last six blocks, mean of the patches) are computed once and kept in the
folder. "fine" are the 60 of 100 Tiny-ImageNet classes whose class means, of ViT-Tiny, are nearest
to three others. By kernels of the pictures, which say the same as Gram matrices.

β has the least held-out error over all sessions, as heads choose it. A line of JSON per cell: by
what is read, the final accuracy in percent; ``evidence``, the leave-one-out errors of each
session's own pictures at the best β over all so far, and ``first``, those of the first session;
``held``, the held-out errors by which heads choose. M random features in all:

    one, one+, three, three+    CLS of the last block or of three, + with patches, one projection
    even W                      seven blocks, a projection for each of M / 7
    half W, third W             the last one has M / 2 or M / 3, the others the rest
    four W                      the last three and patches; the last one has M / 2
                                each block in units of its own mean squared norm, times the square
                                of its weight: W is that of the last, of earlier ones, of patches
    half 1.2 W, third 1.2 W     with 1.2 M
    one F, even F, both F       two heads of F · M; both: the mean of their logits
"""

import argparse
import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from safecl.backbone.load import load_backbone
from safecl.backbone.settings import BackboneSettings
from safecl.heads.choose_beta import PRICE, dual_errors, leave_one_out_errors
from safecl.heads.random_features import random_projection
from safecl.heads.reading import Reading
from safecl.heads.settings import RidgeSettings
from safecl.randomness import derive
from safecl.streams.drawn.glyphs import POOL, GlyphPictures
from safecl.streams.pictures.files import File, FilePictures
from safecl.streams.pictures.images import Pictures, Transform
from safecl.streams.pictures.load import batches

READ = Reading(layers=6, patches=True)
FOLDERS = {
    "flowers102": ("flowers102_20x12", 60, 24),
    "cifar100": ("cifar100_50x10", 60, 24),
    "pacs": ("pacs_30x15", 28, 30),
    "tiny-imagenet": ("tiny_imagenet_held", 100, 20),
}
CHARACTERS = 60
FINE = 60
SESSIONS = 10
BACKBONES = {
    "micro": {"name": "safecl_micro"},
    "vit_tiny": {"name": "vit_tiny_patch16_224", "weights": "vit_tiny_augreg.safetensors"},
    "vit_tiny_64": {"weights": "vit_tiny_p8_64.safetensors"},
    "reg4_b": {"weights": "dinov2_s14_reg4_b.safetensors", "image_size": 112},
}


@dataclass(frozen=True)
class Cell:
    data: str
    backbone: str
    size: int
    seed: int


def pictures_of(assets: Path, data: str) -> tuple[Pictures, list[str]]:
    """Some pictures of every class, and their classes; of PACS domain/class."""
    if data == "glyphs":
        dice = random.Random(0)
        characters = dice.sample(POOL, CHARACTERS)
        found = GlyphPictures(characters, range(24), seed=0)
        return found, list(map(str, found.labels))
    folder, classes, most = FOLDERS[data]
    by_class: dict[str, list[Path]] = {}
    for path in sorted((assets / folder).rglob("[!.]*.[jp]*g")):
        place = path.relative_to(assets / folder).parts
        label = "/".join(place[(place[0] in ("train", "test")) : -1])
        by_class.setdefault(label, []).append(path)
    paths = []
    labels = []
    for label, own in sorted(by_class.items())[:classes]:
        some = random.Random(label).sample(own, min(most, len(own)))
        paths += some
        labels += [label] * len(some)
    return FilePictures([File.at(path) for path in paths], labels), labels


def extract(assets: Path, folder: Path, data: str, backbone: str) -> tuple[Tensor, np.ndarray]:
    """Features (N, 7, d) and classes (N,), which are computed once."""
    file = folder / f"{data}_{backbone}.npz"
    if file.exists():
        found = np.load(file)
        return torch.from_numpy(found["x"]).float(), found["y"]
    settings = dict(BACKBONES[backbone])
    if "weights" in settings:
        settings["weights"] = str(assets / settings["weights"])
    network = load_backbone(BackboneSettings.model_validate(settings))
    pictures, labels = pictures_of(assets, data)
    rows = []
    with torch.no_grad():
        for batch in batches(pictures, range(len(labels)), 64, "plain", Transform(network.size)):
            rows.append(network.read(batch.pictures.float() / 255, READ).half())
    x = torch.cat(rows).reshape(len(labels), READ.blocks, -1)
    np.savez(file, x=x.numpy(), y=np.array(labels))
    return x.float(), np.array(labels)


# of the last block, of earlier ones, of the patches
WEIGHTS = {
    "1 1 1": (1.0, (1.0,) * 5, 1.0),
    "2 1 1": (2.0, (1.0,) * 5, 1.0),
    "4 1 1": (4.0, (1.0,) * 5, 1.0),
    "8 1 1": (8.0, (1.0,) * 5, 1.0),
    "1 1 0": (1.0, (1.0,) * 5, 0.0),
    "2 1 0": (2.0, (1.0,) * 5, 0.0),
    "1 1 2": (1.0, (1.0,) * 5, 2.0),
    "2 1 2": (2.0, (1.0,) * 5, 2.0),
    "1 near 1": (1.0, (1.0, 1.0, 0.0, 0.0, 0.0), 1.0),
    "2 near 1": (2.0, (1.0, 1.0, 0.0, 0.0, 0.0), 1.0),
    "1 fading 1": (1.0, (0.8, 0.64, 0.51, 0.41, 0.33), 1.0),
    "1 0 0": (1.0, (0.0,) * 5, 0.0),
}
LAST = ["1 1 1", "2 1 1", "4 1 1", "8 1 1"]


class Division(NamedTuple):
    """Which blocks have a projection of their own, the share of M of the last one, in units of M
    what all have, and the weights that are tried.
    """

    blocks: Sequence[int]
    last: float
    all: float
    weights: list[str]


DIVISIONS = {
    "even": Division(range(7), 1 / 7, 1.0, ["1 1 1"]),
    "half": Division(range(7), 1 / 2, 1.0, list(WEIGHTS)),
    "third": Division(range(7), 1 / 3, 1.0, LAST),
    "four": Division((0, 1, 2, 6), 1 / 2, 1.0, LAST),
    "half 1.2": Division(range(7), 1 / 2, 1.2, LAST),
    "third 1.2": Division(range(7), 1 / 3, 1.2, LAST),
}
# of M in each of two heads: as many numbers in two Gram matrices as in one, and 1.5 times as many
PAIRS = (0.7, 0.86)
READINGS = {"one": (1, False), "one+": (1, True), "three": (3, False), "three+": (3, True)}


class Stream(NamedTuple):
    """Blocks (N, 7, d) and classes (N,) of pictures, those of each session, and those that are
    tested."""

    x: Tensor
    y: Tensor
    sessions: list[Tensor]
    tested: Tensor


def stream(assets: Path, folder: Path, data: str, backbone: str, seed: int) -> Stream:
    """The classes in an order by the seed, which also cuts the pictures."""
    x, labels = extract(assets, folder, "tiny-imagenet" if data == "fine" else data, backbone)
    domains = data == "pacs"
    names = np.array([one.split("/")[-1] for one in labels]) if domains else labels
    known = sorted(set(names))
    if data == "fine":
        known = finest(*extract(assets, folder, "tiny-imagenet", "vit_tiny"))
    dice = random.Random(seed)
    order = dice.sample(known, len(known))
    y = torch.tensor([order.index(one) if one in order else -1 for one in names])
    group = np.array([one.split("/")[0] for one in labels]) if domains else labels
    learned = []
    tested = []
    for one in sorted({*group[(y >= 0).numpy()]}):
        rows = np.flatnonzero(group == one).tolist()
        by_class = [[i for i in rows if names[i] == own] for own in sorted({*names[rows]})]
        for own in by_class:
            own = dice.sample(own, len(own))
            cut = len(own) * 2 // 3
            learned += own[:cut]
            tested += own[cut:]
    learned = torch.tensor(learned)
    if domains:
        parts = dice.sample(sorted({*group}), len({*group}))
        sessions = [learned[torch.from_numpy(group[learned] == one)] for one in parts]
    else:
        step = -(-len(order) // SESSIONS)
        sessions = [learned[y[learned] // step == s] for s in range(SESSIONS)]
    shuffled = [rows[torch.tensor(dice.sample(range(len(rows)), len(rows)))] for rows in sessions]
    return Stream(x, y, shuffled, torch.tensor(tested))


def finest(x: Tensor, labels: np.ndarray) -> list[str]:
    """The ``FINE`` classes whose three nearest class means are nearest."""
    names = sorted(set(labels))
    means = torch.stack([x[torch.from_numpy(labels == one), 0].mean(dim=0) for one in names])
    means = F.normalize(means - means.mean(dim=0), dim=1)
    near = (means @ means.T).fill_diagonal_(-1).topk(3).values.mean(dim=1)
    return sorted(names[i] for i in near.topk(FINE).indices.tolist())


class Kernels:
    """Inner products of random features of learned pictures with all, by session order."""

    def __init__(self, own: Stream, seed: int) -> None:
        self.own = own
        self.seed = seed
        self.rows = torch.cat([*own.sessions, own.tested])
        self.n = sum(map(len, own.sessions))

    def of(self, blocks: list[int], size: int) -> Tensor:
        """Of one projection of these blocks, in units of its mean squared norm: (N, n)."""
        x = self.own.x[self.rows][:, blocks].flatten(1)
        seed = derive(self.seed, "projection", *blocks, size)
        kernel = torch.zeros(len(x), self.n)
        drawn = random_projection(x.shape[1], size, seed, x.device)
        for part in drawn.split(1024, dim=1):
            h = torch.relu(x @ part)
            kernel.addmm_(h, h[: self.n].T)
        return kernel / float(kernel.diagonal().mean())


class Head(NamedTuple):
    """What a head of some kernel is, and its logits of the tested pictures."""

    said: dict[str, float]
    logits: Tensor


def judged(kernels: Kernels, kernel: Tensor) -> Head:
    """A head of this kernel (N, n), and what the sessions say of it."""
    own = kernels.own
    n = kernels.n
    kernel = kernel / float(kernel.diagonal().mean())
    betas = list(RidgeSettings().betas)
    errors = torch.zeros(len(betas), dtype=torch.float64)
    left = torch.zeros(len(betas), dtype=torch.float64)
    first = 0.0
    start = 0
    for rows in own.sessions:
        here = slice(start, start + len(rows))
        start += len(rows)
        k = kernel[here, here]
        y = torch.unique(own.y[rows], return_inverse=True)[1]
        fitted = 4 * len(rows) // 5
        price = PRICE * (len(rows) - fitted) * torch.tensor(betas).double().log10()
        errors += dual_errors(k, F.one_hot(y), fitted, betas) - price
        each = leave_one_out_errors(k, F.one_hot(y), betas).sum(dim=1)
        first = first or float(each.min()) / len(rows)
        left += each
    beta = betas[int(errors.argmin())]
    inner = kernel[:n].double()
    inner.diagonal().add_(beta)
    one_hot = F.one_hot(own.y[kernels.rows][:n]).double()
    logits = kernel[n:].double() @ torch.linalg.solve(inner, one_hot)
    said = {
        "accuracy": accuracy(kernels, logits),
        "evidence": float(left.min()) / n,
        "held": float(errors.min()) / n,
        "first": first,
        "beta": beta,
    }
    return Head(said, logits)


def accuracy(kernels: Kernels, logits: Tensor) -> float:
    """In percent."""
    right = logits.argmax(dim=1) == kernels.own.y[kernels.rows][kernels.n :]
    return 100 * float(right.double().mean())


def measured(assets: Path, folder: Path, cell: Cell) -> dict[str, Any]:
    """What is said of each kind of head, by its name."""
    own = stream(assets, folder, cell.data, cell.backbone, cell.seed)
    kernels = Kernels(own, cell.seed)
    found: dict[str, Any] = {}
    for name, (layers, patches) in READINGS.items():
        blocks = [*range(layers), *([6] if patches else [])]
        found[name] = judged(kernels, kernels.of(blocks, cell.size)).said
    for name, division in DIVISIONS.items():
        size = round(cell.size * division.all)
        last = int(size * division.last)
        rest = (size - last) // (len(division.blocks) - 1)
        each = {b: kernels.of([b], rest if b else last) for b in division.blocks}
        for weights in division.weights:
            one, earlier, patches = WEIGHTS[weights]
            by_block = [one, *earlier, patches]
            parts = [k * by_block[b] ** 2 for b, k in each.items() if by_block[b]]
            found[f"{name} {weights}"] = judged(kernels, torch.stack(parts).sum(dim=0)).said
    for share in PAIRS:
        size = round(cell.size * share)
        parts = [kernels.of([b], size // 7) for b in range(7)]
        pair = {
            "one": judged(kernels, kernels.of([0], size)),
            "even": judged(kernels, torch.stack(parts).sum(dim=0)),
        }
        found |= {f"{name} {share}": head.said for name, head in pair.items()}
        both = torch.stack([head.logits for head in pair.values()]).sum(dim=0)
        found[f"both {share}"] = {"accuracy": accuracy(kernels, both)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--assets", type=Path, default=Path())
    parser.add_argument("--features", type=Path, default=Path("features"))
    parser.add_argument("--data", nargs="*", default=[*FOLDERS, "glyphs", "fine"])
    parser.add_argument("--backbones", nargs="*", default=list(BACKBONES))
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--sizes", type=int, nargs="*", default=[5000])
    parser.add_argument("--out", type=Path, default=Path("blocks.jsonl"))
    o = parser.parse_args()
    o.features.mkdir(parents=True, exist_ok=True)
    for size, seed, backbone, data in product(o.sizes, o.seeds, o.backbones, o.data):
        cell = Cell(data, backbone, size, seed)
        line = json.dumps({**asdict(cell), "found": measured(o.assets, o.features, cell)})
        with o.out.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        print(asdict(cell), flush=True)


if __name__ == "__main__":
    main()
