"""Is the number of epochs that a model chooses a good one? Against half and twice as many.

    python benchmarks/epochs.py --pictures FOLDER --classes 3 --each 10 --draws 5

FOLDER holds train/CLASS and test/CLASS. Each draw takes other classes and pictures; they are learned in one session by
a new model for every number of epochs, and all test pictures of these classes are asked.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

from safecl import ContinualClassifier
from safecl.streams.sources.folder import read_folder
from safecl.streams.stream import positions


def measure(data: object, classes: int, each: int, draw: int, factor: float, backbone: str) -> dict[str, object]:
    """Accuracy on the test pictures, and what the model expects of itself."""
    train, test = data.train, data.test  # type: ignore[attr-defined]
    dice = np.random.RandomState(draw)
    chosen = [data.classes[i] for i in dice.permutation(len(data.classes))[:classes]]  # type: ignore[attr-defined]
    rows = [i for c in chosen for i in dice.permutation(positions(train.labels)[c])[:each]]
    own = ContinualClassifier(backbone, seed=draw)._resolved().for_pictures(len(rows)).epochs
    epochs = max(round(own * factor), 1)
    model = ContinualClassifier(backbone, seed=draw, epochs=epochs)
    began = time.monotonic()
    lesson = model.learn(train.subset(sorted(rows)))
    seconds = time.monotonic() - began
    score = model.score(test.subset([i for c in chosen for i in positions(test.labels)[c]]))
    return {"classes": classes, "each": each, "draw": draw, "rule": own, "epochs": epochs, "accuracy": score,
            "left_out": lesson.accuracy, "seconds": round(seconds, 1)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, required=True)
    parser.add_argument("--backbone", default="micro")
    parser.add_argument("--classes", type=int, default=3)
    parser.add_argument("--each", type=int, default=10)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--factors", type=float, nargs="+", default=[0.5, 1, 2])
    options = parser.parse_args()
    data = read_folder(options.pictures, duplicates="allow")
    for draw in range(options.draws):
        for factor in options.factors:
            found = measure(data, options.classes, options.each, draw, factor, options.backbone)
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
