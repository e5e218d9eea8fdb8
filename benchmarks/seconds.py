"""Seconds that a person waits for: a process that starts, an answer, a first and a later session.

python benchmarks/seconds.py FOLDER [--classes 5] [--each 20] [--times 3] [--other CHECKOUT]

FOLDER has a folder of pictures for each class. Every command runs in a process of its own, all of
them in turn, and medians are compared: ``import torch`` for what starts a process, and a plain loop
for what learns: the features of the embedded backbone by timm, scikit-learn's logistic regression.
``--other``: another checkout of this repository; ``--raw``: a file for the lines. Where other work
runs beside, seconds of the processor tell more than those of the clock.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
LOOP = """
import sys, timm, torch, numpy
from pathlib import Path
from PIL import Image
from sklearn.linear_model import LogisticRegression
from safecl.backbone.load import load_backbone
folder, size = Path(sys.argv[1]), 128
files = sorted(folder.glob("*/*"))
def read(file):
    image = Image.open(file).convert("RGB")
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    image = image.crop((left, top, left + side, top + side)).resize((size, size), Image.BICUBIC)
    return torch.from_numpy(numpy.array(image)).permute(2, 0, 1).float() / 255
backbone = load_backbone("safecl_micro", image_size=size)
network = getattr(backbone, "network", None) or backbone.vit  # as older checkouts call it
with torch.no_grad():
    parts = torch.stack([read(file) for file in files]).mul(2).sub(1).split(64)
    features = torch.cat([network.forward_head(network.forward_features(x)) for x in parts])
LogisticRegression(max_iter=1000).fit(features.numpy(), [file.parent.name for file in files])
"""


@dataclass(frozen=True)
class Took:
    """Seconds by the clock and of the processor; ``first``: by the clock, until it answered."""

    clock: float
    processor: float
    first: float | None = None


def took(command: list[str], source: Path = HERE, model: Path | None = None) -> Took:
    """A command with the package in ``source``; ``model``: whose file is waited for."""
    environment = {**os.environ, "PYTHONPATH": str(source / "src")}
    before = os.times()
    started = time.perf_counter()
    first = None
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    mark = model.stat().st_mtime_ns if model is not None and model.exists() else 0
    while process.poll() is None:
        there = model is not None and model.exists() and model.stat().st_mtime_ns != mark
        if there and first is None:
            first = time.perf_counter() - started
        time.sleep(0.01)
    clock = time.perf_counter() - started
    after = os.times()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)[:200]} failed")
    user = after.children_user - before.children_user
    return Took(clock, user + after.children_system - before.children_system, first or clock)


def lessons(folder: Path, classes: int, each: int, to: Path) -> tuple[Path, Path]:
    """Two folders of so many classes with so many pictures."""
    found = sorted(path for path in folder.iterdir() if path.is_dir())[: 2 * classes]
    for i, path in enumerate(found):
        place = to / ("first" if i < classes else "later") / path.name
        place.mkdir(parents=True)
        for file in sorted(path.iterdir())[:each]:
            shutil.copy(file, place)
    return to / "first", to / "later"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--classes", type=int, default=5)
    parser.add_argument("--each", type=int, default=20)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--other", type=Path)
    parser.add_argument("--raw", type=Path)
    given = parser.parse_args()
    found: dict[str, list[Took]] = {}
    sources = {"": HERE} | ({"before: ": given.other.resolve()} if given.other else {})
    python = [sys.executable, "-c"]
    with tempfile.TemporaryDirectory() as place:
        first, later = lessons(given.folder, given.classes, given.each, Path(place))
        picture = str(next(path for path in sorted(first.rglob("*")) if path.is_file()))
        for _ in range(given.times):
            work: dict[str, Callable[[], Took]] = {
                "import torch": lambda: took([*python, "import torch"]),
                "import typer, rich": lambda: took([*python, "import typer, rich"]),
                "plain loop": lambda: took([*python, LOOP, str(first)]),
            }
            for name, source in sources.items():
                model = Path(place, f"{len(name)}.safecl")
                model.unlink(missing_ok=True)
                run = [sys.executable, "-m", "safecl"]
                words = {
                    "a classifier": [*python, "import safecl; safecl.ContinualClassifier()"],
                    "help": [*run, "--help"],
                    "first session": [*run, "learn", str(first), "-m", str(model), "-q"],
                    "later session": [*run, "learn", str(later), "-m", str(model), "-q"],
                    "predict": [*run, "predict", picture, "-m", str(model)],
                }
                for what, command in words.items():
                    work[name + what] = lambda c=command, s=source, m=model: took(c, s, m)  # type: ignore[misc]
            for what, measure in work.items():
                found.setdefault(what, []).append(measure())
    lines = [
        {
            "what": what,
            "classes": given.classes,
            "each": given.each,
            "times": given.times,
            "clock": statistics.median(one.clock for one in all_),
            "processor": statistics.median(one.processor for one in all_),
            "first": statistics.median(one.first or one.clock for one in all_),
        }
        for what, all_ in found.items()
    ]
    by = {line["what"]: line for line in lines}
    for line in lines:
        what = str(line["what"]).removeprefix("before: ")
        base = {"help": "import typer, rich", "first session": "plain loop"}.get(what)
        base = base or ("plain loop" if what == "later session" else "import torch")
        ratios = [f"{line[k] / by[base][k]:.2f}" for k in ("clock", "processor")]  # type: ignore[operator]
        said = f"{line['clock']:6.2f} s by the clock, {line['processor']:6.2f} s of the processor"
        answer = f", answers after {line['first']:.2f} s" if "session" in what else ""
        print(f"{line['what']!s:24}{said}: {' and '.join(ratios)} × {base}{answer}")
    if given.raw is not None:
        text = "".join(json.dumps(line) + "\n" for line in lines)
        given.raw.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
