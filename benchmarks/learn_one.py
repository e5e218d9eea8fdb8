"""Seconds of the processor that ``learn_one`` takes: the first picture, each of the next, and
twenty together; with the networks' features, and what these take alone.

python benchmarks/learn_one.py MODEL FOLDER [--pictures 5]

MODEL has learned no picture of FOLDER, which has a folder for each of its classes. One thread.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from safecl.classifier.classifier import ContinualClassifier

TOGETHER = 20


def took(work: Callable[[], Any]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pictures", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    model = ContinualClassifier.load(given.model, device="cpu")
    files = sorted(path for path in given.folder.glob("*/*") if path.parent.name in model.classes_)
    files = files[:: max(len(files) // (given.pictures + 1 + TOGETHER), 1)]
    labels = [path.parent.name for path in files]
    names = list(map(str, files))
    model.transform(names[:1])
    one = median(took(partial(model.transform, [name])) for name in names[: given.pictures])
    each = [
        took(partial(model.learn_one, name, label))
        for name, label in zip(names[: given.pictures + 1], labels, strict=False)
    ]
    rest = slice(given.pictures + 1, given.pictures + 1 + TOGETHER)
    together = took(lambda: model.learn_one(names[rest], labels[rest]))
    looks = took(lambda: model.transform(names[rest]))
    print(f"the first {each[0]:.2f} s, then {median(each[1:]):.2f} s, features alone {one:.2f} s")
    print(f"{len(names[rest])} together {together:.2f} s, features alone {looks:.2f} s")


if __name__ == "__main__":
    main()
