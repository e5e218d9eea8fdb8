"""Does a model know how good it is? What it says of itself, against pictures that were held back.

    python benchmarks/trust.py --assets DIR --out trust.jsonl

DIR holds folders of pictures, train/CLASS and test/CLASS each. A model learns some classes in five sessions. Then its
leave-one-out accuracy, by output, is compared with the accuracy on pictures that it has not learned, its temperature
with the best one for these, and the expected calibration error of its probabilities is measured. A line of JSON per
model.
"""

import argparse
import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from safecl import ContinualClassifier
from safecl.classifier.calibrate import expected_error, fit_temperature, probabilities, recalled
from safecl.classifier.data import unlabelled
from safecl.heads.leave_one_out import leaving_out, one_of_each
from safecl.streams.pictures.images import Pictures, join
from safecl.streams.sources.folder import read_folder
from safecl.streams.stream import positions

SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "moving": {  # the fast learner moves far in every session
        "method.policy": {"pilot": 0.0, "release": False, "average": False},
        "method.guide.lambda_cos": 0.0,
        "train.lr": 0.03,
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--assets", type=Path, required=True)
    parser.add_argument("--data", nargs="+", default=["flowers102_20x12", "cifar100_50x10"])
    parser.add_argument("--pets", nargs="+", default=["ssf", "adapter"])
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--classes", type=int, default=15)
    parser.add_argument("--each", type=int, default=24, help="training pictures per class, at most")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--size", type=int, default=64, help="pixels per side of the embedded backbone's input")
    parser.add_argument("--out", type=Path, default=Path("trust.jsonl"))
    o = parser.parse_args()
    for data, pet, how, seed in product(o.data, o.pets, o.settings, range(o.seeds)):
        sessions, held = divided(o.assets / data, o.classes, o.each, seed)
        options = {"epochs": o.epochs, "image_size": o.size, "seed": seed, "settings": SETTINGS[how]}
        model = ContinualClassifier("micro", "safe", pet, **options)
        line = json.dumps({"data": data, "pet": pet, "settings": how, "seed": seed, **measure(model, sessions, held)})
        print(line, flush=True)
        with o.out.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def divided(path: Path, classes: int, each: int, seed: int, sessions: int = 5) -> tuple[list[Pictures], Pictures]:
    """(the pictures of each session, pictures held back), of classes drawn by ``seed``."""
    data, dice = read_folder(path, duplicates="allow"), np.random.RandomState(seed)
    chosen = [data.classes[i] for i in dice.permutation(len(data.classes))[:classes]]
    train, test = positions(data.train.labels), positions(data.test.labels)
    shuffled = {label: dice.permutation(train[label]).tolist() for label in chosen}
    parts = [
        [i for c in part for i in shuffled[chosen[c]][:each]]
        for part in np.array_split(np.arange(len(chosen)), sessions)
    ]
    unused = data.train.subset([i for label in chosen for i in shuffled[label][each:]])
    held = join([unused, data.test.subset([i for label in chosen for i in test[label]])])
    return [data.train.subset(part) for part in parts], held


def measure(model: ContinualClassifier, sessions: Sequence[Pictures], held: Pictures) -> dict[str, Any]:
    """Teach the sessions, then compare what the model says of itself with the pictures held back."""
    for pictures in sessions:
        model.learn(pictures)
    return compare(model, held)


@torch.no_grad()
def compare(model: ContinualClassifier, held: Pictures) -> dict[str, Any]:
    """What the model says of itself, and what the pictures held back show."""
    fitted = model._fitted
    calibration, kept = fitted.header["calibration"], fitted.state.kept
    method = fitted.method(model._backbone(), learning=True).eval()
    method.refresh()
    features, targets = recalled(method, kept, torch.arange(len(kept["targets"]))), kept["targets"]
    with leaving_out(method, targets, one_of_each(targets), method.included(features)):
        left_out = method.answer(features)
    parts = [logits for logits, _ in model._snapshot().logits(unlabelled(held))]
    new = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    index = {label: i for i, label in enumerate(fitted.classes)}
    truth, main = torch.tensor([index[label] for label in held.labels]), method.outputs[-1]
    sure, correct = probabilities(new[main], calibration).amax(dim=1), new[main].argmax(dim=1) == truth
    return {
        "said": calibration["accuracy"],
        "left_out": {name: accuracy(logits, targets) for name, logits in left_out.items()},
        "held_back": {name: accuracy(logits, truth) for name, logits in new.items()},
        "temperature": calibration["temperature"],
        "best_temperature": fit_temperature(new[main], truth),
        "calibration_error": expected_error(sure, correct),
        "pictures": [len(targets), len(truth)],
    }


def accuracy(logits: Tensor, targets: Tensor) -> float:
    return round(float((logits.argmax(dim=1) == targets).float().mean()), 4)


if __name__ == "__main__":
    main()
