"""Does a model know how good it is? What it says of itself, against pictures that were held back.

    python benchmarks/trust.py --assets DIR --list
    python benchmarks/trust.py --assets DIR --cells 0-51 --out trust.jsonl
    python benchmarks/trust.py --table trust.jsonl

DIR holds folders of pictures, train|test/CLASS or train|test/DOMAIN/CLASS, and
vit_tiny_augreg.safetensors. A cell is a model: a set of pictures, a backbone, pictures per class,
sessions and an order of the classes. It learns some classes, and what it says of itself is compared
with pictures of them that it has not learned: its leave-one-out accuracy (the mean over classes),
the expected calibration error of its probabilities, and how many it calls unknown at three rates.
What needs no training is measured by frozen.py.
Strangers are near (other classes of the same set) or far (another set). A line of JSON per model;
cells are computed one by one, so that several processes can share them.
"""

import argparse
import json
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from tables import beyond, inside
from torch import Tensor
from unknowns import BY_FEATURES, auroc, by_logits, left_out

from safecl import ContinualClassifier
from safecl.classifier.answers.calibrate import (
    expected_error,
    fit_temperature,
    probabilities,
    recalled,
    unknown_score,
)
from safecl.classifier.answers.snapshot import LIKENESS
from safecl.classifier.data import unlabelled
from safecl.classifier.teach import embed
from safecl.heads.left_out import LeftOut, one_of_each
from safecl.runtime.answer import least, quantile, thresholds
from safecl.streams.drawn.glyphs import POOL, GlyphPictures
from safecl.streams.pictures.files import File, FilePictures
from safecl.streams.pictures.images import Label, Pictures, join

RATES = (0.01, 0.05, 0.2)
COVERAGE = 0.9
FAR = {
    "cifar100": "flowers102",
    "flowers102": "cifar100",
    "pacs": "flowers102",
    "glyphs": "cifar100",
}
FOLDERS = {
    "cifar100": "cifar100_200x60_jpeg",
    "flowers102": "flowers102_20x12",
    "pacs": "pacs_30x15",
}
TESTED = 60
FAR_PICTURES = 400  # pictures per class that are held back, and of another set, at most
GLYPHS = 85  # pictures that are drawn of a character

# Pictures per class (and domain), sessions (0: one per domain), classes that are learned, classes
# that are strangers.
SHAPES: dict[str, list[tuple[int, int, int, int]]] = {
    "cifar100": [
        (100, 5, 50, 20),
        (100, 2, 20, 20),
        (25, 10, 80, 20),
        (10, 5, 80, 20),
        (5, 8, 80, 20),
    ],
    "flowers102": [(25, 2, 35, 10), (10, 7, 35, 10), (5, 5, 35, 10)],
    "pacs": [(25, 0, 5, 2), (10, 0, 5, 2)],
    "glyphs": [(25, 5, 60, 20), (10, 3, 80, 20), (5, 10, 80, 20)],
}


@dataclass(frozen=True)
class Cell:
    """A model; ``each``: pictures per class and session of the class; ``order``: draws classes and
    pictures.
    """

    data: str
    backbone: str
    each: int
    sessions: int
    classes: int
    strangers: int
    order: int


CELLS = [
    Cell(data, backbone, *shape, order)
    for order, backbone, data in product(range(2), ("vit_tiny", "micro"), SHAPES)
    for shape in SHAPES[data]
]


@dataclass(frozen=True)
class Divided:
    """The pictures of each session, those held back of the same classes, and strangers."""

    sessions: list[Pictures]
    held: Pictures
    near: Pictures
    far: Pictures


def pools(assets: Path, data: str) -> dict[Label, dict[str, Pictures]]:
    """All pictures of a set, by class and domain."""
    if data == "glyphs":
        plain = {one.casefold(): one for one in POOL}  # names that differ only in case are refused
        return {one: {"": GlyphPictures([one], range(GLYPHS))} for one in plain.values()}
    found: dict[Label, dict[str, list[Path]]] = {}
    for path in sorted((assets / FOLDERS.get(data, data)).glob("*/**/*.*")):
        _, *domain, label = path.parent.relative_to(assets / FOLDERS.get(data, data)).parts
        found.setdefault(label, {}).setdefault("/".join(domain), []).append(path)
    return {
        label: {
            domain: FilePictures([File.at(p) for p in paths], [label] * len(paths))
            for domain, paths in by.items()
        }
        for label, by in found.items()
    }


def divided(assets: Path, cell: Cell) -> Divided:
    """Classes and pictures drawn by the cell's order."""
    dice = random.Random(cell.order)
    pool = pools(assets, cell.data)
    order = sorted(pool, key=str)
    dice.shuffle(order)
    known = order[: cell.classes]
    strange = order[cell.classes : cell.classes + cell.strangers]
    taught: dict[Label, dict[str, Pictures]] = {}
    held: list[Pictures] = []
    for label in known:
        for domain, pictures in pool[label].items():
            rows = dice.sample(range(len(pictures)), len(pictures))
            taught.setdefault(label, {})[domain] = pictures.subset(rows[: cell.each])
            held.append(pictures.subset(rows[cell.each :][:TESTED]))
    domains = sorted({domain for by in taught.values() for domain in by})
    if cell.sessions:
        parts = np.array_split(np.arange(len(known)), cell.sessions)
        sessions = [
            join([taught[known[c]][domain] for c in part for domain in domains]) for part in parts
        ]
    else:
        dice.shuffle(domains)
        sessions = [join([taught[label][domain] for label in known]) for domain in domains]
    near = [
        part.subset(range(len(part))[:TESTED]) for label in strange for part in pool[label].values()
    ]
    other = (
        [part for by in pools(assets, FAR[cell.data]).values() for part in by.values()]
        if cell.data in FAR
        else near
    )
    far = join(other)
    chosen = sorted(dice.sample(range(len(far)), min(FAR_PICTURES, len(far))))
    return Divided(sessions, join(held), join(near), far.subset(chosen))


def taught(assets: Path, cell: Cell, data: Divided, device: str) -> ContinualClassifier:
    """The model of a cell."""
    name = "micro"
    settings = {}
    if cell.backbone != "micro":
        name = "vit_tiny_patch16_224"
        settings = {"backbone.weights": str(assets / "vit_tiny_augreg.safetensors")}
    model = ContinualClassifier(name, seed=cell.order, device=device, settings=settings)  # type: ignore[arg-type]
    for pictures in data.sessions:
        model.learn(pictures)
    return model


@torch.no_grad()
def compare(model: ContinualClassifier, data: Divided, dump: Path | None = None) -> dict[str, Any]:
    """What the model says of itself, and what the pictures held back and the strangers show."""
    fitted = model._fitted
    calibration = fitted.header["calibration"]
    kept = fitted.state.kept
    main = model._snapshot().outputs[-1]
    parts = {"known": data.held, "near": data.near, "far": data.far}
    new = {}
    own = {}
    for name, pictures in parts.items():
        new[name], own[name] = answered(model, pictures)
    index = {label: i for i, label in enumerate(fitted.classes)}
    truth = torch.tensor([index[label] for label in data.held.labels])
    z = new["known"][main]
    correct = z.argmax(dim=1) == truth
    p = probabilities(z, calibration, own["known"])
    sure = p.amax(dim=1)
    members = p.double() >= torch.from_numpy(least(calibration, COVERAGE, len(index)))
    held = members.gather(1, truth[:, None])
    line = {
        "said": calibration["accuracy"],
        "interval": calibration["interval"],
        "true": float(by_class(correct, truth).mean()),
        "judged": calibration["pictures"],
        "tested": len(truth),
        "error": expected_error(sure, correct),
        "noise": noise(sure),
        "sure": float(sure.mean()),
        "temperature": calibration["temperature"],
        "best_temperature": fit_temperature(z, truth),
        "sets": [float(held.double().mean()), float(members.sum(dim=1).double().mean())],
        "expected": calibration["strangers"],
        "false_alarms": {},
        "found": {},
    }
    for rate in RATES:
        limits = torch.from_numpy(thresholds(calibration, rate, len(index)))
        called = {name: verdicts(rows[main], own[name], limits) for name, rows in new.items()}
        line["false_alarms"][rate] = [sum(called["known"]), len(called["known"])]
        line["found"][rate] = {
            name: mean(called[name]) if called[name] else None for name in ("near", "far")
        }
    features = frozen_features(model, parts)
    left = left_out_of(model)
    scores = all_scores(model, left["one"], new, features, kept)
    line["scores"] = {name: found(*values) for name, values in scores.items()}
    if dump is not None:
        few = {part: rows[:: max(1, len(rows) // 400)].half() for part, rows in features.items()}
        logits = {
            part: {name: rows.half() for name, rows in by.items() if name != main}
            for part, by in new.items()
        }
        both = {"kept": kept, "features": few, "new": logits, "scores": scores}
        torch.save(
            {"line": line, "truth": truth, "left_out": left, "calibration": calibration, **both},
            dump,
        )
    return line


def answered(model: ContinualClassifier, pictures: Pictures) -> tuple[dict[str, Tensor], Tensor]:
    """Logits (n, C) by output, and how known each picture looks to the model."""
    now = model._snapshot()
    parts = list(now.scored(unlabelled(pictures)))
    found = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    score = unknown_score(found[now.outputs[-1]], found.get(LIKENESS), now.calibration)
    return {name: found[name] for name in now.outputs}, score


def verdicts(logits: Tensor, score: Tensor, limits: Tensor) -> list[bool]:
    """Whether each picture is called unknown, of those of which that can be told."""
    limit = limits[logits.argmax(dim=1)]
    return [
        bool(a < b) for a, b in zip(score.double().tolist(), limit.tolist(), strict=True) if b == b
    ]


@torch.no_grad()
def left_out_of(model: ContinualClassifier) -> dict[str, Any]:
    """Logits by output of the kept pictures, left out one of each class or half of them at a
    time.
    """
    fitted = model._fitted
    kept = fitted.state.kept
    method = fitted.method(model._backbone(), learning=True).eval()
    method.refresh()
    features = recalled(method, kept, torch.arange(len(kept["targets"])))
    groups = one_of_each(kept["targets"])
    found: dict[str, Any] = {
        "targets": kept["targets"],
        "learned": fitted.state.seen["classes"].bincount(),
    }
    for name, chosen in (("one", groups), ("half", groups % 2)):
        on = method.backbone.device
        left_out = LeftOut(kept["targets"].to(on), chosen.to(on), method.judging.included(features))
        logits = method.answer(features, left_out)
        found[name] = {output: rows.float().cpu() for output, rows in logits.items()}
    return found


def frozen(model: ContinualClassifier) -> str:
    """Who answers beside the fast learner: the slow learner or the untuned backbone."""
    method = model._snapshot().method
    return str(method.voices(method.sessions)["slow"].name)


def frozen_features(model: ContinualClassifier, parts: dict[str, Pictures]) -> dict[str, Tensor]:
    """Features (n, d) of new pictures by who answers beside the fast learner."""
    method = model._snapshot().method
    transform = model._fitted.transform
    name = frozen(model)
    device = method.backbone.device
    return {
        part: method.last(
            embed(method.embed, pictures, range(len(pictures)), transform, device)[name]
        )
        for part, pictures in parts.items()
    }


@torch.no_grad()
def all_scores(
    model: ContinualClassifier,
    left: dict[str, Tensor],
    new: dict[str, dict[str, Tensor]],
    features: dict[str, Tensor],
    kept: dict[str, Tensor],
) -> dict[str, tuple[Tensor, dict[str, Tensor]]]:
    """By name of a score: that of kept pictures, left out, and those of new ones."""
    main = model._snapshot().outputs[-1]
    temperature = model._fitted.header["calibration"]["temperature"] or 1.0
    own = by_logits(left, main, temperature)
    others = {part: by_logits(rows, main, temperature) for part, rows in new.items()}
    found = {
        name: (scores, {part: rows[name] for part, rows in others.items()})
        for name, scores in own.items()
    }
    f = model._snapshot().method.last(kept[frozen(model)].float())
    targets = kept["targets"]
    for name, score in BY_FEATURES.items():
        new_ones = {part: score(x, f, targets) for part, x in features.items()}
        found[name] = left_out(score, f, targets, one_of_each(targets)), new_ones
    return found


def found(own: Tensor, new: dict[str, Tensor]) -> dict[str, float]:
    """At a rate of 5 %, by all pictures together: false alarms and strangers found; how well
    strangers are told.
    """
    limit = quantile(own.sort().values.tolist(), 0.05)
    shares = {name: float((rows < limit).float().mean()) for name, rows in new.items()}
    return shares | {f"{name} auroc": auroc(new["known"], new[name]) for name in ("near", "far")}


def by_class(correct: Tensor, targets: Tensor) -> Tensor:
    """The accuracy of each class that has pictures."""
    counts = targets.bincount()
    shares: Tensor = targets.bincount(weights=correct.double())[counts > 0] / counts[counts > 0]
    return shares


def noise(sure: Tensor, draws: int = 50) -> float:
    """The calibration error that as many pictures show of probabilities that are true."""
    dice = torch.Generator().manual_seed(0)
    return mean(
        expected_error(sure, torch.rand(len(sure), generator=dice) < sure) or 0.0
        for _ in range(draws)
    )


def summary(lines: Sequence[dict[str, Any]]) -> list[str]:
    """What the lines say of the model's word, in sentences."""
    off = [abs(line["said"] - line["true"]) for line in lines]
    out = [beyond(line) for line in lines]
    told = [
        (
            f"{len(lines)} models: |said − true| {100 * mean(off):.1f} points on average,"
            f" {100 * max(off):.1f} at worst; beyond the interval {100 * mean(out):.1f} and"
            f" {100 * max(out):.1f}; inside {sum(o == 0 for o in out)}."
        ),
        f"Bias {100 * mean(line['said'] - line['true'] for line in lines):+.1f} points.",
        (
            f"Calibration error {mean(line['error'] for line in lines):.3f} on average,"
            f" {max(line['error'] for line in lines):.3f} at worst;"
            f" {mean(line['noise'] for line in lines):.3f} by chance."
        ),
    ]
    if with_sets := [line["sets"] for line in lines if "sets" in line]:  # older lines have none
        held, size = (mean(one[i] for one in with_sets) for i in (0, 1))
        told.append(f"Sets of {COVERAGE:.0%}: {held:.1%} held, {size:.2f} classes on average.")
    for rate in map(str, RATES):
        asked = [
            (line, *line["false_alarms"][rate]) for line in lines if line["false_alarms"][rate][1]
        ]
        if not asked:
            continue
        strict = mean(inside(float(rate), alarms, tested) for _, alarms, tested in asked)
        wide = mean(
            inside(float(rate), alarms, tested, line["judged"]) for line, alarms, tested in asked
        )
        share = mean(alarms / tested for _, alarms, tested in asked)
        shares = {
            part: mean(line["found"][rate][part] for line, *_ in asked) for part in ("near", "far")
        }
        told.append(
            f"At {float(rate):.0%}: {len(asked)} models can tell; {share:.1%} false alarms; inside"
            f" the band of the pictures tested {strict:.0%}, and of those judged, too, {wide:.0%};"
            f" strangers found: near {shares['near']:.1%}, far {shares['far']:.1%}."
        )
    for name in lines[0]["scores"]:
        with_it = [line["scores"][name] for line in lines if name in line["scores"]]
        told.append(
            f"{name:>22}: "
            + ", ".join(f"{key} {mean(one[key] for one in with_it):.3f}" for key in with_it[0])
        )
    return told


def numbers(text: str) -> Iterable[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--assets", type=Path, default=Path())
    parser.add_argument("--cells", default=f"0-{len(CELLS) - 1}", help="such as 0-5,9")
    parser.add_argument("--out", type=Path, default=Path("trust.jsonl"))
    parser.add_argument("--dump", type=Path, help="a folder for logits and scores")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--list", action="store_true", help="print the cells")
    parser.add_argument("--table", type=Path, help="a file of lines to sum up")
    o = parser.parse_args()
    if o.list:
        print("\n".join(f"{i} {cell}" for i, cell in enumerate(CELLS)))
        return
    if o.table:
        print(
            "\n".join(
                summary(
                    [json.loads(line) for line in o.table.read_text(encoding="utf-8").splitlines()]
                )
            )
        )
        return
    for i in numbers(o.cells):
        began = time.monotonic()
        data = divided(o.assets, CELLS[i])
        model = taught(o.assets, CELLS[i], data, o.device)
        learned = time.monotonic() - began
        found = compare(model, data, o.dump / f"cell_{i}.pt" if o.dump else None)
        seconds = [round(learned, 1), round(time.monotonic() - began, 1)]
        line = json.dumps({"cell": i, **asdict(CELLS[i]), **found, "seconds": seconds})
        print(line, flush=True)
        with o.out.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    main()
