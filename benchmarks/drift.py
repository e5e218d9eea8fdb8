"""How soon does a model notice that pictures have changed, and how often is it wrong?

    python benchmarks/drift.py --assets DIR --features DIR --out drift.jsonl

A model as in ``frozen.py``. Its streams are held-back pictures of its classes, in any order
(*quiet*) or one class after the other (*sorted*). What changes from picture 1, or 101, on: the
brightness is halved; a blur of 2 px; another camera's colours (gains of 1.2, 1 and 0.8); other
classes of the set. A line of JSON per model: by kind of stream, how many there were, false alarms,
after how many changed pictures each alarm was (null: never), and which changes it named.
"""

import argparse
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from frozen import CELLS, EACH, Cell, Model, files, network_of
from PIL import Image, ImageFilter
from torch import Tensor

from safecl.classifier.answers.calibrate import calibrate, looked, unknown_score
from safecl.runtime.drift import Drift
from safecl.streams.pictures.decode import decode
from safecl.streams.pictures.images import Transform
from safecl.streams.pictures.prepare import prepare

QUIET = 34  # streams per model: with six models more than 200
CHANGED = 5
BEFORE = (0, 100)
STREAM = 300
AFTER = 120
GAINS = (1.2, 1.0, 0.8)
CHANGES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "half as bright": lambda image: image.point(lambda level: level // 2),
    "blur of 2 px": lambda image: image.filter(ImageFilter.GaussianBlur(2)),
    "other colours": lambda image: Image.fromarray(
        (np.asarray(image) * GAINS).clip(0, 255).astype(np.uint8)
    ),
}


def pictures(assets: Path, folder: Path, cell: Cell, change: str | None) -> dict[str, Any]:
    """By class, (features (n, d), looks (n, 6)) of its pictures, changed or not."""
    file = folder / f"drift_{cell.data}_{cell.backbone}_{(change or 'as it is').split()[0]}.pt"
    if file.exists():
        return dict(torch.load(file))
    network = network_of(assets, cell.backbone)
    transform = Transform(network.size)
    found = {}
    for label, paths in files(assets, cell.data).items():
        views = []
        for path in paths:
            image = decode(path.read_bytes(), path.name)
            image = CHANGES[change](image) if change else image
            views.append(np.asarray(prepare(image, transform.size, transform.resize)))
        images = torch.from_numpy(np.stack(views)).permute(0, 3, 1, 2).float() / 255
        with torch.no_grad():
            rows = torch.cat([network.features(part) for part in images.split(64)]).float()
        found[label] = (rows, looked(images))
    torch.save(found, file)
    return found


class Taught:
    """The model, and what it says of pictures."""

    def __init__(self, x: Tensor, y: Tensor, look: Tensor, seed: int) -> None:
        self.model = Model(x, y, seed)
        self.classes = range(int(y.max()) + 1)
        left = self.model.left
        self.calibration = calibrate(y, left, left, self.model.like, None, look)

    def seen(self, x: Tensor, look: Tensor) -> list[tuple[int, float, list[float]]]:
        z = self.model.head.logits(x)
        score = unknown_score(z, -self.model.nearest(x), self.calibration)
        rows = (z.argmax(dim=1).tolist(), score.tolist(), look.tolist())
        return list(zip(*rows, strict=True))

    def alarm(self, stream: list[tuple[int, float, list[float]]]) -> tuple[int | None, Drift]:
        """After how many pictures there is one."""
        drift = Drift(self.calibration, self.classes)
        for i, (answer, score, look) in enumerate(stream, start=1):
            drift.see([answer], [score], [look], 0.0)
            if drift.alarm:
                return i, drift
        return None, drift


def measured(assets: Path, folder: Path, cell: Cell) -> dict[str, Any]:
    pool = pictures(assets, folder, cell, None)
    labels = sorted(pool)
    dice = random.Random(cell.seed)
    dice.shuffle(labels)
    rows = {label: dice.sample(range(len(x)), len(x)) for label, (x, _) in pool.items()}
    known = labels[: cell.classes]
    first = [(pool[label], rows[label][:EACH]) for label in known]
    x, look = (torch.cat([both[i][own] for both, own in first]) for i in (0, 1))
    y = torch.cat([torch.full((len(own),), c) for c, (_, own) in enumerate(first)])
    taught = Taught(x, y, look, cell.seed)

    def later(found: dict[str, Any], chosen: list[str], since: int) -> list[Any]:
        every = [(found[label], rows[label][since:]) for label in chosen]
        parts = [torch.cat([both[i][own] for both, own in every]) for i in (0, 1)]
        return taught.seen(*parts)

    held = later(pool, known, EACH)
    streams = [dice.sample(held, min(STREAM, len(held))) for _ in range(QUIET)]
    found: dict[str, Any] = {"length": len(streams[0])}
    found["quiet"] = [taught.alarm(stream)[0] for stream in streams]
    in_order = []
    for _ in range(CHANGED):
        own = dice.sample(known, len(known))
        in_order.append(taught.alarm(later(pool, own, EACH)[:STREAM])[0])
    found["sorted"] = in_order
    others = {name: pictures(assets, folder, cell, name) for name in CHANGES}
    after = {name: later(those, known, EACH) for name, those in others.items()}
    after["other classes"] = later(pool, labels[cell.classes :], 0)
    for name, those in after.items():
        for before in BEFORE:
            delays, false, words = [], 0, Counter[str]()
            for _ in range(CHANGED):
                stream = dice.sample(held, min(before, len(held)))
                stream += dice.sample(those, min(AFTER, len(those)))
                at, drift = taught.alarm(stream)
                false += at is not None and at <= before
                delays.append(None if at is None else at - before)
                words.update(drift.changes)
            found[f"{name}, {before} before"] = [false, delays, dict(words)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--assets", type=Path, default=Path())
    parser.add_argument("--features", type=Path, default=Path("features"))
    parser.add_argument("--backbones", nargs="*", default=["micro", "vit_tiny"])
    parser.add_argument("--data", nargs="*", default=["flowers102", "cifar100", "pacs"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("drift.jsonl"))
    o = parser.parse_args()
    for cell in CELLS:
        if cell.data in o.data and cell.backbone in o.backbones and cell.seed < o.seeds:
            line = json.dumps({**asdict(cell), **measured(o.assets, o.features, cell)})
            with o.out.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
            print(line[:2000], flush=True)


if __name__ == "__main__":
    main()
