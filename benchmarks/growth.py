"""Time and memory of many small sessions on the embedded backbone.

    python benchmarks/growth.py --sessions 50

Learning a session should cost the same whether it is the second or the fiftieth: nothing grows with
the past but the columns (one per class) of the heads. Testing covers everything learned so far, so
it grows and is reported apart.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from safecl.atomic import read_lines
from safecl.engine.progress import make_progress
from safecl.experiments.config import load
from safecl.experiments.launch import launch


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=50)
    parser.add_argument("--classes", type=int, default=2, help="in each session")
    parser.add_argument("--pictures", type=int, default=8, help="of each class, for training")
    parser.add_argument("--preset", default="safe")
    parser.add_argument("words", nargs="*", help="key=value words for the run")
    options = parser.parse_args()
    total = options.sessions * options.classes
    size = [
        "stream=glyphs",
        f"stream.classes={total}",
        f"stream.sessions={options.sessions}",
        "stream.test=1",
    ]
    settings = load(
        options.preset,
        [
            *size,
            f"stream.train={options.pictures}",
            "ridge.size=500",
            "train.epochs=2",
            "train.batch_size=8",
            *options.words,
        ],
    )
    with tempfile.TemporaryDirectory() as folder:
        launch(settings, Path(folder) / "run", make_progress("quiet"))
        lines = read_lines(Path(folder) / "run" / "metrics.jsonl", options.sessions)
    print(curve(lines))


def curve(lines: list[dict[str, Any]]) -> str:
    """A row for every tenth of the sessions, and the straight lines through all but the first."""
    rows = ["session  classes  learn s  test s  peak MB  kept kB"]
    values = [numbers(line) for line in lines]
    step = max(len(lines) // 10, 1)
    for line, value in zip(lines, values, strict=True):
        if line["session"] in (1, 2) or line["session"] % step == 0:
            rows.append(
                "{:7d}  {:7d}  {:7.2f}  {:6.2f}  {:7.0f}  {:7.0f}".format(*place(line), *value)
            )
    later = np.array(values[1:])
    at = np.arange(2, len(lines) + 1)
    for i, (name, unit) in enumerate(
        (("learn", "s"), ("test", "s"), ("peak", "MB"), ("kept", "kB"))
    ):
        slope = np.polyfit(at, later[:, i], 1)[0]
        share = 100 * slope / max(later[:, i].mean(), 1e-9)
        rows.append(
            f"{name:5}  mean {later[:, i].mean():8.2f} {unit}, {slope:+.4f} {unit} per session"
            f" ({share:+.2f} %)"
        )
    classes = np.array([line["classes_seen"] for line in lines[1:]])
    column = np.polyfit(classes, later[:, 3], 1)[0] * 1e3
    rows.append(f"one more class keeps {column:.0f} bytes more")
    return "\n".join(rows)


def place(line: dict[str, Any]) -> tuple[int, int]:
    return line["session"], line["classes_seen"]


def numbers(line: dict[str, Any]) -> tuple[float, float, float, float]:
    """Seconds to learn, seconds to test, peak megabytes, kilobytes kept."""
    seconds = line["seconds"]
    learn = seconds["fit"] + seconds["statistics"]
    return learn, seconds["evaluate"], line["peak_memory"] / 1e6, line["bytes_kept"] / 1e3


if __name__ == "__main__":
    main()
