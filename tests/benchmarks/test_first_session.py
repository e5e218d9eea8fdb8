"""The benchmark of the first session: what it measures."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import first_session

pytestmark = pytest.mark.slow  # run once before a release: a benchmark is no part of the package

Options = Callable[..., argparse.Namespace]


def test_both_methods_learn_the_same_pictures(options: Options) -> None:
    words = ["train.epochs=4", "ridge.size=50", "device=cpu"]
    line = first_session.turn(options(first=4, classes=None, words=words), 0)
    safe = line["safe"]
    ranpac = line["ranpac"]
    assert safe["pictures"] == ranpac["pictures"] == 16
    assert {"pilot1", "pilot2", "slow"} <= safe.keys() and "ranpac" in ranpac
    # two pilots of three quarters on one half of the classes
    assert 1.5 < safe["steps"] / ranpac["steps"] < 3
    assert line["ratio"] > 0
