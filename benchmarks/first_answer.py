"""Seconds until ``safecl predict`` has answered one picture: with a model, and with what was exported of it.

python benchmarks/first_answer.py pets.safecl pets.onnx picture.jpg [--times 5]
Both in turn, each in a process of its own; the least of each counts, because other work only adds to it.
"""

import argparse
import subprocess
import sys
import time


def seconds(model: str, picture: str) -> tuple[float, str]:
    """How long the command takes, and what it prints."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "safecl", "predict", picture, "--model", model]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return time.perf_counter() - started, said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("exported")
    parser.add_argument("picture")
    parser.add_argument("--times", type=int, default=5)
    given = parser.parse_args()
    taken: dict[str, list[float]] = {given.model: [], given.exported: []}
    said = set()
    for _ in range(given.times):
        for file, found in taken.items():
            took, text = seconds(file, given.picture)
            found.append(took)
            said.add(text)
    one, other = (min(found) for found in taken.values())
    print(f"{given.model}: {one:.2f} s; {given.exported}: {other:.2f} s, {one / other:.1f} times as fast")
    print(f"the same line: {'yes' if len(said) == 1 else 'no'}")


if __name__ == "__main__":
    main()
