"""What a frozen backbone can promise: sets, wrong labels and strangers, from features alone.

    python benchmarks/frozen.py --assets DIR --features DIR --out frozen.jsonl
    python benchmarks/frozen.py --table frozen.jsonl

A model is a ridge head (and class means) on features of a frozen backbone, as ``ranpac`` with
``pet=none`` has it: a set of pictures, a backbone, classes in five sessions, 20 pictures of each,
and a seed. Held back are other pictures of its classes; *near* strangers are other classes of the
set, *far* ones another set. Features are computed once and kept in the folder. A line of JSON per
model:

``sets``: by coverage, the share of pictures whose set holds their class, the worst class of those
with 10 tested, and the mean size; beside that plain softmax sets: the likeliest classes whose
probabilities add up to the coverage.
``audit``: by score, the share of 5 % planted wrong labels in the first 10 % of rows.
``strangers``: by score, AUROC and share found at 5 % false alarms of near and far ones; and what
classes that are left out of the sums in turn, in the session that brings them, say of both.
"""

import argparse
import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from unknowns import auroc, left_out, mahalanobis

from safecl.backbone.backbone import Backbone
from safecl.backbone.load import load_backbone
from safecl.backbone.settings import BackboneSettings
from safecl.classifier.answers.calibrate import (
    WEIGHTS,
    calibrate,
    probabilities,
    unknown_score,
)
from safecl.heads.gaussians import SharedGaussians
from safecl.heads.left_out import LeftOut, one_of_each
from safecl.heads.nearest import NearestMean
from safecl.heads.ridge import RidgeHead
from safecl.heads.settings import RidgeSettings
from safecl.runtime.answer import least, quantile, thresholds
from safecl.streams.pictures.files import File, FilePictures
from safecl.streams.pictures.images import Transform
from safecl.streams.pictures.load import batches

SETS = {
    "flowers102": "flowers102_20x12",
    "cifar100": "cifar100_50x10",
    "pacs": "pacs_30x15",
    "tiny-imagenet": "tiny_imagenet_held",
}
FAR = {
    "flowers102": "cifar100",
    "cifar100": "flowers102",
    "pacs": "flowers102",
    "tiny-imagenet": "flowers102",
}
EACH = 20  # pictures of a class that are learned
MOST = 50  # and that are read
SESSIONS = 5
COVERAGES = (0.8, 0.9, 0.95)
RATE = 0.05
SIZE = 2000


@dataclass(frozen=True)
class Cell:
    data: str
    backbone: str
    classes: int
    strangers: int
    seed: int


CELLS = [
    Cell(data, backbone, classes, strangers, seed)
    for seed, backbone, (data, classes, strangers) in product(
        range(3),
        ("micro", "vit_tiny"),
        (
            ("flowers102", 50, 40),
            ("flowers102", 10, 40),
            ("cifar100", 50, 40),
            ("cifar100", 10, 40),
            ("pacs", 5, 2),
            ("tiny-imagenet", 50, 50),
        ),
    )
]


def network_of(assets: Path, backbone: str) -> Backbone:
    settings = {"name": "safecl_micro"}
    if backbone != "micro":
        file = {"vit_tiny": "vit_tiny_augreg"}.get(backbone, backbone)
        settings = {
            "name": "vit_tiny_patch16_224",
            "weights": str(assets / f"{file}.safetensors"),
        }
    return load_backbone(BackboneSettings.model_validate(settings))


def files(assets: Path, data: str) -> dict[str, list[Path]]:
    """By class, some of its pictures."""
    paths: dict[str, list[Path]] = {}
    for path in sorted((assets / SETS[data]).glob("*/**/*.*")):
        paths.setdefault(path.parent.name, []).append(path)
    return {
        label: random.Random(label).sample(own, min(MOST, len(own))) for label, own in paths.items()
    }


def features(assets: Path, folder: Path, data: str, backbone: str) -> dict[str, Tensor]:
    """By class, the features (n, d) of some of its pictures."""
    file = folder / f"{SETS[data]}_{backbone}.pt"
    if file.exists():
        return dict(torch.load(file))
    network = network_of(assets, backbone)
    found = {}
    for label, own in files(assets, data).items():
        pictures = FilePictures([File.at(path) for path in own], [label] * len(own))
        views = batches(pictures, range(len(own)), 64, "plain", Transform(network.size))
        with torch.no_grad():
            rows = [network.features(batch.pictures.float() / 255) for batch in views]
        found[label] = torch.cat(rows).float()
    torch.save(found, file)
    return found


class Model:
    """A ridge head, class means, and what was learned."""

    def __init__(self, x: Tensor, y: Tensor, seed: int) -> None:
        self.x = x
        self.y = y
        self.head = RidgeHead(x.shape[1], RidgeSettings(size=SIZE), seed)
        self.gaussians = SharedGaussians(x.shape[1])
        for part in y.unique().chunk(SESSIONS):
            rows = torch.isin(y, part)
            self.head.add(x[rows], y[rows])
            self.gaussians.add(x[rows], y[rows])
        self.head.solve()
        self.nearest = NearestMean(x.shape[1])
        self.nearest.follow(self.gaussians)
        out = LeftOut(y, one_of_each(y))
        self.left = self.head.logits(x, out)
        self.like = -self.nearest(x, out)
        # Each class is asked about as if it had not been learned: all of its rows leave the sums.
        gone = LeftOut(y, y)
        z = self.head.logits(x, gone).scatter(1, y[:, None], -1e9)
        self.stand_ins = (z, -self.nearest(x, gone))
        self.calibration = calibrate(y, self.left, self.left, self.like, self.stand_ins)
        assert self.calibration is not None
        self.fixed = {**self.calibration, "weights": [*WEIGHTS]}
        pairs = ((z.mean(), z.std()) for z in (self.left.amax(dim=1), self.like))
        self.before = {**self.calibration, "weights": None, "scales": [*pairs]}

    def p(self, x: Tensor) -> Tensor:
        z = self.head.logits(x)
        known = unknown_score(z, -self.nearest(x), self.calibration)
        return probabilities(z, self.calibration, known)


def sets(model: Model, x: Tensor, y: Tensor) -> dict[str, Any]:
    p = model.p(x)
    found = {}
    for coverage in COVERAGES:
        members = p.double() >= torch.from_numpy(least(model.calibration, coverage, p.shape[1]))
        order = p.argsort(dim=1, descending=True)
        below = p.gather(1, order).cumsum(dim=1) - p.gather(1, order) < coverage
        plain = torch.zeros_like(below).scatter(1, order, below)
        for name, chosen in (("sets", members), ("softmax", plain)):
            held = chosen.gather(1, y[:, None])[:, 0].double()
            counts = y.bincount(minlength=p.shape[1])
            own = torch.bincount(y, held, p.shape[1]) / counts.clamp(min=1)
            size = float(chosen.sum(dim=1).double().mean())
            worst = float(own[counts >= 10].min())
            found[f"{name} {coverage}"] = [float(held.mean()), worst, size]
    return found


def audit(x: Tensor, y: Tensor, seed: int) -> dict[str, float]:
    """Where planted wrong labels are found."""
    draw = torch.Generator().manual_seed(seed)
    wrong = torch.randperm(len(y), generator=draw)[: len(y) // 20]
    labels = y.clone()
    classes = int(y.max()) + 1
    labels[wrong] += torch.randint(1, classes, (len(wrong),), generator=draw)
    model = Model(x, labels % classes, seed)
    p = probabilities(model.left, model.calibration).gather(1, model.y[:, None])[:, 0].double()
    own = (F.one_hot(model.y, classes) - model.left.double()).square().sum(dim=1)
    others = model.head.harm(x, model.y)
    scores = {
        "own and others": own + others,
        "own": own,
        "others": others,
        "probability": -p,
        "probability and others": (1 - p).square() + others,
    }
    found = {}
    for name, score in scores.items():
        first = score.argsort(descending=True)[: len(y) // 10]
        found[name] = float(torch.isin(wrong, first).double().mean())
    return found


def by_score(
    model: Model, x: Tensor, z: Tensor, like: Tensor, groups: Tensor | None = None
) -> dict[str, Tensor]:
    """How known pictures look: (n,) by score; ``groups`` (N,): x are the learned ones, each of
    which is compared with those of other groups.
    """
    others = None if groups is None else groups[:, None] != groups
    if groups is None:
        relative = mahalanobis(x, model.x, model.y)
    else:
        relative = left_out(mahalanobis, model.x, model.y, groups)
    temperature = model.calibration["temperature"]
    similar = F.normalize(x, dim=1) @ F.normalize(model.x, dim=1).T
    similar = similar if others is None else similar.masked_fill(~others, -1)
    top = z.topk(2, dim=1).values
    p = torch.softmax(z / temperature, dim=1)
    largest = p.topk(min(10, p.shape[1] - 1), dim=1).values.double()
    return {
        "sum, fitted": unknown_score(z, like, model.calibration),
        "sum": unknown_score(z, like, model.fixed),
        "smooth minimum": unknown_score(z, like, model.before),
        "largest logit": z.amax(dim=1),
        "energy": temperature * (z / temperature).logsumexp(dim=1),
        "margin": top[:, 0] - top[:, 1],
        "Mahalanobis": like,
        "nearest neighbours": similar.topk(5, dim=1).values[:, -1],
        "relative Mahalanobis": relative,
        "probability": p.amax(dim=1),
        "GEN": -(largest * (1 - largest)).clamp(min=0).pow(0.1).sum(dim=1),
    }


def strangers(model: Model, parts: dict[str, Tensor]) -> dict[str, Any]:
    """By score, how well it tells strangers, and what classes left out say of that."""
    known = by_score(model, model.x, model.left, model.like, one_of_each(model.y))
    new = {
        part: by_score(model, x, model.head.logits(x), -model.nearest(x))
        for part, x in parts.items()
    }
    stand_ins = by_score(model, model.x, *model.stand_ins, model.y)
    found: dict[str, Any] = {}
    for name, own in known.items():
        limit = quantile(own.sort().values.tolist(), RATE)
        found[name] = {
            "false alarms": float((new["known"][name] < limit).double().mean()),
            "estimated": [auroc(own, stand_ins[name]), _below(stand_ins[name], limit)],
            **{
                part: [auroc(new["known"][name], new[part][name]), _below(new[part][name], limit)]
                for part in ("near", "far")
            },
        }
    limits = torch.from_numpy(thresholds(model.calibration, RATE, len(model.calibration["scores"])))
    shown = {
        part: (rows["sum, fitted"] < limits[model.head.logits(parts[part]).argmax(dim=1)])
        for part, rows in new.items()
    }
    found["as models use it"] = {part: float(rows.double().mean()) for part, rows in shown.items()}
    noticed, asked = model.calibration["strangers"]
    found["as models use it"]["said of near"] = noticed / asked
    return found


def _below(score: Tensor, limit: float) -> float:
    return float((score < limit).double().mean())


def measured(assets: Path, folder: Path, cell: Cell) -> dict[str, Any]:
    pool = features(assets, folder, cell.data, cell.backbone)
    labels = sorted(pool)
    dice = random.Random(cell.seed)
    dice.shuffle(labels)
    rows = {label: dice.sample(range(len(x)), len(x)) for label, x in pool.items()}
    known = labels[: cell.classes]
    near = labels[cell.classes :][: cell.strangers]
    x = torch.cat([pool[label][rows[label][:EACH]] for label in known])
    y = torch.cat([torch.full((EACH,), c) for c in range(len(known))])
    held = [pool[label][rows[label][EACH:]] for label in known]
    far = torch.cat(list(features(assets, folder, FAR[cell.data], cell.backbone).values()))
    some = torch.randperm(len(far), generator=torch.Generator().manual_seed(0))[:400]
    parts = {"known": torch.cat(held), "near": torch.cat([pool[one][:20] for one in near])}
    truth = torch.cat([torch.full((len(own),), c) for c, own in enumerate(held)])
    model = Model(x, y, cell.seed)
    return {
        "accuracy": float(
            (model.head.logits(parts["known"]).argmax(dim=1) == truth).double().mean()
        ),
        "said": model.calibration["accuracy"],
        "tested": len(truth),
        "sets": sets(model, parts["known"], truth),
        "audit": audit(x, y, cell.seed),
        "strangers": strangers(model, {**parts, "far": far[some]}),
    }


def summary(lines: list[dict[str, Any]]) -> Iterator[str]:
    for name in lines[0]["sets"]:
        held, worst, size = (mean(line["sets"][name][i] for line in lines) for i in range(3))
        yield f"{name}: {held:.1%} held, worst class {worst:.1%}, mean size {size:.2f}"
    for key in sorted({(line["data"], line["backbone"], line["classes"]) for line in lines}):
        own = [line for line in lines if (line["data"], line["backbone"], line["classes"]) == key]
        told = {
            name: round(mean(line["audit"][name] for line in own), 3) for name in own[0]["audit"]
        }
        yield f"audit {key}: {told}"
    for name, first in lines[0]["strangers"].items():
        told = {}
        for key, value in first.items():
            several = [line["strangers"][name][key] for line in lines]
            whole = isinstance(value, float)
            told[key] = (
                round(mean(several), 3)
                if whole
                else [round(mean(one[i] for one in several), 3) for i in (0, 1)]
            )
        yield f"{name}: {told}"
    today, best = [], []
    for line in lines:
        scores = {k: v for k, v in line["strangers"].items() if "estimated" in v}
        chosen = max(scores, key=lambda name: scores[name]["estimated"][1])
        today.append(scores["sum, fitted"])
        best.append(scores[chosen])
    for name, each in (("sum, fitted", today), ("chosen by classes left out", best)):
        shares = {part: round(mean(one[part][1] for one in each), 3) for part in ("near", "far")}
        yield f"{name}: {shares}"
    off = [abs(one["estimated"][1] - one["near"][1]) for one in today]
    yield f"expected share of near strangers off by {mean(off):.3f}, at most {max(off):.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--assets", type=Path, default=Path())
    parser.add_argument("--features", type=Path, default=Path("features"))
    parser.add_argument("--data", nargs="*", default=list(SETS))
    parser.add_argument("--backbones", nargs="*", default=["micro", "vit_tiny"])
    parser.add_argument("--out", type=Path, default=Path("frozen.jsonl"))
    parser.add_argument("--table", type=Path, help="a file of lines to sum up")
    o = parser.parse_args()
    if o.table:
        lines = [json.loads(line) for line in o.table.read_text(encoding="utf-8").splitlines()]
        print("\n".join(summary(lines)))
        return
    o.features.mkdir(parents=True, exist_ok=True)
    for cell in CELLS:
        if cell.data in o.data and cell.backbone in o.backbones:
            line = json.dumps({**asdict(cell), **measured(o.assets, o.features, cell)})
            with o.out.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
            print(line[:160], flush=True)


if __name__ == "__main__":
    main()
