"""Is the queue worth following? Accuracy after labelling the pictures that it names first, against
as many at random.

    python benchmarks/labelling.py --pictures DIR [--seeds 3]

DIR holds train/CLASS and test/CLASS. A model learns a few pictures of half of the classes; the rest
of the training pictures, of all classes, is the folder without labels. A line of JSON per seed.
"""

import argparse
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from safecl import ContinualClassifier
from safecl.streams.sources.folder import read_folder
from safecl.streams.stream import positions


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pictures", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--classes", type=int, default=12)
    parser.add_argument(
        "--known", type=int, default=4, help="labelled pictures of each class that is known"
    )
    parser.add_argument("--each", type=int, default=12, help="training pictures per class, at most")
    parser.add_argument("--labels", type=int, default=18, help="pictures that are labelled then")
    parser.add_argument("--size", type=int, default=64)
    o = parser.parse_args()
    data = read_folder(o.pictures, duplicates="allow")
    train = positions(data.train.labels)
    test = positions(data.test.labels)
    for seed in range(o.seeds):
        dice = np.random.default_rng(seed)
        chosen = [data.classes[i] for i in dice.permutation(len(data.classes))[: o.classes]]
        mixed = {label: dice.permutation(train[label])[: o.each].tolist() for label in chosen}
        known = [i for label in chosen[: o.classes // 2] for i in mixed[label][: o.known]]
        rest = [i for label in chosen for i in mixed[label] if i not in set(known)]
        held = data.test.subset([int(i) for label in chosen for i in test[label]])
        model = ContinualClassifier("micro", epochs=1, image_size=o.size, seed=seed)
        model.learn(data.train.subset(known))
        queue = [rest[one.index] for one in model.queue(data.train.subset(rest), o.labels)]
        line = {"seed": seed, "before": model.score(held)}
        with TemporaryDirectory() as folder:
            model.save(Path(folder) / "m.safecl")
            for name, picked in {
                "queue": queue,
                "random": dice.permutation(rest)[: o.labels].tolist(),
            }.items():
                again = ContinualClassifier.load(Path(folder) / "m.safecl")
                again.learn(data.train.subset(picked))
                line |= {
                    name: again.score(held),
                    f"{name}_classes": len({data.train.labels[i] for i in picked}),
                }
        print(json.dumps({key: round(value, 4) for key, value in line.items()}), flush=True)


if __name__ == "__main__":
    main()
