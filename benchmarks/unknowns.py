"""Are probabilities calibrated, and is ``unknown`` answered as often as promised? Half of the classes are never taught.

    python benchmarks/unknowns.py --assets DIR --data flowers102_20x12 --backbone micro --out unknowns.jsonl

DIR holds the pictures in folders train/CLASS and test/CLASS. For each seed half of the classes, drawn by chance, are
taught in sessions, and all test pictures are classified. It reports the accuracy on taught classes, the expected
calibration error of their probabilities with and without the temperature, how many of them are called unknown at the
promised rate, and how many pictures of the other classes are.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

from safecl import ContinualClassifier
from safecl.classifier.calibrate import expected_error, probabilities, threshold, unknown_score
from safecl.classifier.data import unlabelled
from safecl.engine.progress import make_progress
from safecl.streams.sources.folder import read_folder
from safecl.streams.stream import positions

RATES = (0.01, 0.05, 0.1)


def auroc(known: torch.Tensor, unknown: torch.Tensor) -> float:
    """How often a known picture has a higher score than an unknown one."""
    order = torch.cat([known, unknown]).argsort().argsort().double() + 1
    count = len(known) * (len(known) + 1) / 2
    return float((order[: len(known)].sum() - count) / (len(known) * len(unknown)))


def measure(path: Path, seed: int, sessions: int, each: int, out: Path | None, **options: object) -> dict[str, object]:
    data = read_folder(path, duplicates="allow")
    order = [data.classes[i] for i in np.random.RandomState(seed).permutation(len(data.classes))]
    taught, other = order[: len(order) // 2], order[len(order) // 2 :]
    dice = np.random.RandomState(seed)  # files of one class that follow one another may be nearly the same picture
    train, test = positions(data.train.labels), positions(data.test.labels)
    model = ContinualClassifier(seed=seed, **options)  # type: ignore[arg-type]
    began = time.monotonic()
    for part in np.array_split(np.arange(len(taught)), sessions):
        rows = [i for c in part for i in dice.permutation(train[taught[c]])[:each]]
        model.learn(data.train.subset(sorted(rows)), progress=make_progress("plain"))
    learned = time.monotonic() - began
    logits, labels = {}, {}
    for name, classes in (("known", taught), ("unknown", other)):
        pictures = data.test.subset([i for c in classes for i in test[c]])
        labels[name] = pictures.labels
        logits[name] = torch.cat([main for _, main in model._snapshot().logits(unlabelled(pictures))])
    index = {label: i for i, label in enumerate(model._fitted.classes)}
    targets = torch.tensor([index[label] for label in labels["known"]])
    calibration = model._fitted.header["calibration"]
    right = logits["known"].argmax(dim=1) == targets

    def error(how: dict[str, float] | None) -> float:
        return float(expected_error(probabilities(logits["known"], how).amax(dim=1), right) or 0)

    scores = {name: unknown_score(rows) for name, rows in logits.items()}
    limits = {rate: threshold(calibration["scores"], rate) for rate in RATES}
    if out is not None:
        torch.save(
            {"logits": logits, "targets": targets, "calibration": calibration, "kept": model._fitted.state.kept}, out
        )
    return {
        "data": path.name,
        "seed": seed,
        "classes": len(taught),
        "pictures": len(targets),
        "accuracy": float(right.float().mean()),
        "left_out_accuracy": calibration["accuracy"],
        "temperature": calibration["temperature"],
        "error": error(calibration),
        "error_uncalibrated": error(None),
        "false_alarms": {rate: float((scores["known"] < limit).float().mean()) for rate, limit in limits.items()},
        "found": {rate: float((scores["unknown"] < limit).float().mean()) for rate, limit in limits.items()},
        "auroc": auroc(scores["known"], scores["unknown"]),
        "seconds": learned,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--assets", type=Path, required=True)
    parser.add_argument("--data", default="flowers102_20x12")
    parser.add_argument("--backbone", default="micro")
    parser.add_argument("--weights", default=None)
    parser.add_argument("--size", type=int, default=None)
    parser.add_argument("--method", default="safe")
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sessions", type=int, default=5)
    parser.add_argument("--each", type=int, default=50, help="training pictures per class, at most")
    parser.add_argument("--out", type=Path, default=Path("unknowns.jsonl"))
    parser.add_argument("--dump", type=Path, default=None)
    options = parser.parse_args()
    settings = {"backbone.weights": options.weights} if options.weights else {}
    for seed in range(options.seeds):
        dump = options.dump / f"{options.data}_{options.backbone}_{seed}.pt" if options.dump else None
        found = measure(
            options.assets / options.data,
            seed,
            options.sessions,
            options.each,
            dump,
            backbone=options.backbone,
            method=options.method,
            image_size=options.size,
            epochs=options.epochs,
            settings=settings,
        )
        line = json.dumps({"backbone": options.backbone, "method": options.method, **found})
        print(line, flush=True)
        with options.out.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    main()
