"""The benchmark of cells: its pictures, and that its heads are those of SAFE itself."""

import argparse
import csv
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import cells

pytestmark = pytest.mark.slow  # run once before a release: a benchmark is no part of the package

Options = Callable[..., argparse.Namespace]


@pytest.mark.parametrize("keep", [False, True])
def test_every_seed_draws_its_own_classes_and_never_a_picture_twice(
    keep: bool, options: Options
) -> None:
    drawn = []
    for seed in (0, 0, 1):
        rows = list(csv.DictReader(cells.manifest(options(keep_split=keep), seed).open()))
        drawn.append(sorted({row["label"] for row in rows}))
        assert len({row["path"] for row in rows}) == len(rows) == 4 * (4 + 2)
        assert sum(row["split"] == "train" for row in rows) == 16
        assert not keep or all(f"/{row['split']}/" in row["path"] for row in rows)
    assert drawn[0] == drawn[1] and len(drawn[0]) == 4


def test_its_heads_are_those_of_safe(options: Options) -> None:
    words = ["train.epochs=1", "ridge.size=50", "device=cpu", "method.pilots.use=false"]
    line = cells.cell(options(words=words, every=1), 0)
    _, found = line["accuracy"]
    assert len(line["ranpac every"]) == 2 and len(line["left out"]) == 1
    assert all(len(each) == 2 for each in line["by test"].values())
    assert {
        "slow",
        "untuned",
        *(f"{who} {kind}" for who in ("fast", "safe") for kind in cells.KINDS),
    } == found.keys()
    assert line["own"] == {
        "slow": found["slow"],
        "fast": found["fast gaussians"],
        "safe": found["safe gaussians"],
    }
    assert (
        line["sessions"] == 2
        and 0 <= line["ranpac"] <= 100
        and line["first"]["safe"][0] == line["first"]["ranpac"][0]
    )


def test_another_method_runs_in_the_cell_with_its_own_pet(options: Options) -> None:
    words = ["train.epochs=1", "device=cpu"]
    line = cells.rival(options(preset="ssiat", pet="vpt_deep", words=words), 0)
    assert line["preset"] == "ssiat" and line["final"] in (
        0,
        12.5,
        25,
        37.5,
        50,
        62.5,
        75,
        87.5,
        100,
    )
