"""What a model costs from the shell: teaching, the next session, the first prediction, then
pictures per second.

    python benchmarks/model.py --pictures FOLDER  # ten class folders, each of 25 pictures or more

Each command is its own process in an empty folder. Nothing else should run on the machine
meanwhile.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CLASSES = 5
TAUGHT = 20


def command(*words: str, folder: Path) -> float:
    """Seconds that ``safecl`` takes."""
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "safecl", *words], cwd=folder, check=True, stdout=subprocess.DEVNULL
    )
    return time.monotonic() - began


def measure(pictures: Path, work: Path, many: int) -> dict[str, float]:
    """Seconds, megabytes and pictures a second."""
    classes = sorted(place for place in pictures.iterdir() if place.is_dir())[: 2 * CLASSES]
    every = []
    for number, place in enumerate(classes):
        files = sorted(place.iterdir())
        target = work / ("one" if number < CLASSES else "two") / place.name
        target.mkdir(parents=True)
        for file in files[:TAUGHT]:
            shutil.copy(file, target)
        every += files
    (work / "many").mkdir()
    for i in range(many):
        file = every[i % len(every)]
        shutil.copy(file, work / "many" / f"{i:05d}{file.suffix}")
    found = {"learn": command("learn", "one", "--model", "m.safecl", "-q", folder=work)}
    found["learn the next"] = command("learn", "two", "--model", "m.safecl", "-q", folder=work)
    one = str(next((work / "one").rglob("*.*")))
    command("predict", one, "--model", "m.safecl", folder=work)  # files are read from the disk once
    found["first predict"] = min(
        command("predict", one, "--model", "m.safecl", folder=work) for _ in range(3)
    )
    took = command("predict", "many", "--model", "m.safecl", "-f", "csv", folder=work)
    found["pictures a second, then"] = many / (took - found["first predict"])
    found["inspect"] = command("inspect", "m.safecl", folder=work)
    command("freeze", "m.safecl", "-o", "f.safecl", folder=work)
    found["model, MB"] = (work / "m.safecl").stat().st_size / 1e6
    found["frozen, MB"] = (work / "f.safecl").stat().st_size / 1e6
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    found["peak memory, MB"] = peak / (1e6 if sys.platform == "darwin" else 1e3)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pictures", type=Path, required=True)
    parser.add_argument("--many", type=int, default=600)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        found = measure(options.pictures.resolve(), Path(work), options.many)
    print(
        json.dumps(
            {key: round(value, 2) for key, value in found.items()}
            | {"load before": os.getloadavg()[2]}
        )
    )


if __name__ == "__main__":
    main()
