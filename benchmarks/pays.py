"""What tuning gains a model, and what is known of that before: evidence for ``classifier/pays.py``.

    python benchmarks/pays.py --assets DIR --out pays.jsonl [--minutes 15]

A cell is a set of pictures, a backbone, and a seed: a model learns two sessions of five classes
with ten pictures of each, once without any tuning, and once tuned in the first. A line of JSON per
cell, accuracies in percent of test pictures of all classes so far:

``accuracy``, ``look``: what the first pass says, by leave-one-out, and the seconds of a network's
look at a picture; ``pilots``: the share of the error that they gain, ``kept``: of the tuning;
``expected`` and ``took``: seconds of the tuning. ``untuned``, ``tuned``: after each session.

Cells follow one another in a fixed order, until the minutes are over.
"""

import argparse
import json
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch

from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.pays import Look, expected

FOLDERS = {
    "flowers102": "flowers102_20x12",
    "cifar100": "cifar100_200x60_jpeg",
    "pacs": "pacs_30x15",
}
NETWORKS: dict[str, dict[str, Any]] = {
    "safecl_micro": {},
    "vit_tiny_p8_64": {"backbone": "vit_tiny_patch16_224", "image_size": 64},
    "dinov2_s14_reg4_b": {"backbone": "vit_small_patch14_reg4_dinov2", "image_size": 112},
}
CLASSES = 5
EACH = 10
TESTED = 20  # pictures of a class, at most


@dataclass(frozen=True)
class Cell:
    data: str
    backbone: str
    seed: int


CELLS = [
    Cell(data, backbone, seed)
    for seed, backbone, data in product(range(3), NETWORKS, FOLDERS)
    if backbone != "dinov2_s14_reg4_b" or seed == 0
]


def drawn(cell: Cell, assets: Path) -> list[list[list[tuple[str, str]]]]:
    """For each of two sessions its pictures to learn and to test, with their labels."""
    root = assets / FOLDERS[cell.data]
    places = [path.relative_to(root / "train") for path in sorted((root / "train").rglob("*"))]
    places = [place for place in places if any((root / "test" / place).glob("*.*"))]
    chance = random.Random(f"{cell.data} {cell.seed}")
    if cell.data == "pacs":  # another domain in each session
        domains = chance.sample(sorted({place.parent for place in places}), 2)
        parts = [[place for place in places if place.parent == one] for one in domains]
        parts = [part[:CLASSES] for part in parts]
    else:
        chosen = chance.sample(places, 2 * CLASSES)
        parts = [chosen[:CLASSES], chosen[CLASSES:]]
    found = []
    for part in parts:
        session: list[list[tuple[str, str]]] = [[], []]
        for place in part:
            for half, kind in zip(session, ("train", "test"), strict=True):
                files = sorted(map(str, (root / kind / place).iterdir()))
                most = EACH if kind == "train" else TESTED
                some = chance.sample(files, min(most, len(files)))
                half += [(file, place.name) for file in some]
        found.append(session)
    return found


def new(cell: Cell, assets: Path) -> ContinualClassifier:
    given = NETWORKS[cell.backbone]
    weights = {"backbone.weights": str(assets / f"{cell.backbone}.safetensors")}
    settings = weights if given else {}
    return ContinualClassifier(**given, settings=settings, seed=cell.seed, device="cpu")


def after_each(model: ContinualClassifier, sessions: Any, **first: Any) -> Iterator[float]:
    """Accuracies after each session, of which the ``first`` is learned so."""
    tested: list[tuple[str, str]] = []
    for learned, held in sessions:
        model.learn(learned, **(first if not tested else {"tune": "never"}))
        tested += held
        yield round(100 * model.score(tested), 2)


def measured(cell: Cell, assets: Path) -> dict[str, Any]:
    sessions = drawn(cell, assets)
    facts: dict[str, Any] = {}

    def ready(lesson: Any) -> None:
        facts.update(accuracy=lesson.accuracy, look=round(lesson.look, 4))

    untuned = list(after_each(new(cell, assets), sessions, tune="never"))
    model = new(cell, assets)
    tuned = after_each(model, sessions, tune="always", ready=ready)
    first = next(tuned)
    notes = model.history_[-1]["notes"]
    facts["took"] = round(model.history_[-1]["seconds"], 2)
    facts |= {"pilots": notes.get("gain"), "kept": notes["kept"]}
    settings = model._fitted.settings
    train = settings.for_pictures(len(sessions[0][0]))
    look = Look(len(sessions[0][0]), facts["look"], facts["accuracy"])
    facts["expected"] = round(expected(look, settings.method, train, True, None).seconds, 2)
    return {**asdict(cell), **facts, "untuned": untuned, "tuned": [first, *tuned]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--assets", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=15.0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    ends = time.monotonic() + 60 * given.minutes
    with given.out.open("a", encoding="utf-8") as file:
        for cell in CELLS:
            if time.monotonic() > ends:
                break
            file.write(json.dumps(measured(cell, given.assets)) + "\n")
            file.flush()


if __name__ == "__main__":
    main()
