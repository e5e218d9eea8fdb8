"""Seconds until ``safecl predict`` has answered one picture: with a model, and with what was
exported of it.

python benchmarks/first_answer.py pets.safecl pets.onnx picture.jpg [--times 5] Both in turn, each
in a process of its own; medians are compared. Beside other work the seconds of the processor tell
more than those of the clock.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time


def seconds(model: str, picture: str) -> tuple[float, float, str]:
    """How long the command takes by the clock and of the processor, and what it prints."""
    started = time.perf_counter()
    before = os.times()
    command = [sys.executable, "-m", "safecl", "predict", picture, "--model", model]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    after = os.times()
    spent = (
        after.children_user + after.children_system - before.children_user - before.children_system
    )
    return time.perf_counter() - started, spent, said


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("exported")
    parser.add_argument("picture")
    parser.add_argument("--times", type=int, default=5)
    given = parser.parse_args()
    taken: dict[str, list[tuple[float, float]]] = {given.model: [], given.exported: []}
    said = set()
    for _ in range(given.times):
        for file, found in taken.items():
            *took, text = seconds(file, given.picture)
            found.append((took[0], took[1]))
            said.add(text)
    one, other = (
        [statistics.median(column) for column in zip(*found, strict=True)]
        for found in taken.values()
    )
    for i, by in enumerate(("by the clock", "of the processor")):
        print(
            f"{given.model}: {one[i]:.2f} s; {given.exported}: {other[i]:.2f} s {by},"
            f" {one[i] / other[i]:.1f} times"
        )
    print(f"the same line: {'yes' if len(said) == 1 else 'no'}")


if __name__ == "__main__":
    main()
