"""Which rule for the fast learner when two models are merged?

    python benchmarks/merging.py --pictures FOLDER --out merging.jsonl

FOLDER holds train/CLASS and test/CLASS. A model learns eight classes; two copies of it learn six
more each, apart. The merged model is compared with one that learned all of them in turn: accuracy
on the test pictures of all twenty classes by the slow learner, the fast learner and both together,
with the fast learner's tuning of the first model (share 0), averaged (0.5), or of the second (1).
"""

import argparse
import json
from pathlib import Path

import numpy as np

from safecl import ContinualClassifier
from safecl.classifier.data import unlabelled
from safecl.heads import protocol
from safecl.streams.sources.folder import read_folder
from safecl.streams.stream import positions

SHARES = (0.0, 0.5, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pictures", type=Path, required=True)
    parser.add_argument("--each", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("merging.jsonl"))
    options = parser.parse_args()
    data = read_folder(options.pictures, duplicates="allow")
    train = positions(data.train.labels)
    test = positions(data.test.labels)
    for seed in range(options.seeds):
        order = [
            data.classes[i] for i in np.random.RandomState(seed).permutation(len(data.classes))[:20]
        ]
        parts = order[:8], order[8:14], order[14:]
        lessons = [
            data.train.subset(sorted(i for c in part for i in train[c][: options.each]))
            for part in parts
        ]
        asked = data.test.subset([i for c in order for i in test[c]])

        def accuracy(model: ContinualClassifier, asked=asked) -> dict[str, float]:  # type: ignore[no-untyped-def]
            right: dict[str, list[bool]] = {}
            labels = iter(asked.labels)
            names = model._fitted.classes
            for found in model._snapshot().scored(unlabelled(asked)):
                wanted = [next(labels) for _ in next(iter(found.values()))]
                for output in model._snapshot().outputs:
                    said = [names[i] for i in found[output].argmax(dim=1).tolist()]
                    right.setdefault(output, []).extend(
                        a == b for a, b in zip(said, wanted, strict=True)
                    )
            return {output: float(np.mean(hits)) for output, hits in right.items()}

        base = ContinualClassifier(seed=seed, epochs=options.epochs)
        base.learn(lessons[0])
        one, other, whole = (ContinualClassifier.of(base._fitted) for _ in range(3))
        one.learn(lessons[1])
        other.learn(lessons[2])
        whole.learn(lessons[1])
        whole.learn(lessons[2])
        found: dict[str, dict[str, float]] = {"in turn": accuracy(whole)}
        for share in SHARES:
            protocol.SECOND_SHARE = share
            found[f"share {share}"] = accuracy(one.merged(other))
        line = json.dumps({"pictures": options.pictures.name, "seed": seed, **found})
        print(line, flush=True)
        with options.out.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    main()
