"""The benchmark of the first session: what it measures."""

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import first_session


def test_both_methods_learn_the_same_pictures(folder: Path) -> None:
    given: dict[str, Any] = {
        "folder": folder,
        "protocol": "class",
        "first": 4,
        "step": 2,
        "classes": None,
        "pet": "ssf",
    }
    given |= {"each": 4, "tested": 2, "keep_split": False, "backbone": None, "weights": None, "image_size": None}
    words = ["train.epochs=4", "ridge.size=50", "device=cpu"]
    line = first_session.turn(argparse.Namespace(**given, words=words), 0)
    safe, ranpac = line["safe"], line["ranpac"]
    assert safe["pictures"] == ranpac["pictures"] == 16
    assert {"pilot1", "pilot2", "slow"} <= safe.keys() and "ranpac" in ranpac
    assert 1.5 < safe["steps"] / ranpac["steps"] < 3  # two pilots of three quarters on one half of the classes
    assert line["ratio"] > 0
