"""The benchmark of what the fast learner remembers: its pictures, and that its heads are those of SAFE itself."""

import argparse
import csv
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import memory

Options = Callable[..., argparse.Namespace]


@pytest.mark.parametrize("keep", [False, True])
def test_every_seed_draws_its_own_classes_and_never_a_picture_twice(keep: bool, options: Options) -> None:
    drawn = []
    for seed in (0, 0, 1):
        rows = list(csv.DictReader(memory.manifest(options(keep_split=keep), seed).open()))
        drawn.append(sorted({row["label"] for row in rows}))
        assert len({row["path"] for row in rows}) == len(rows) == 4 * (4 + 2)
        assert sum(row["split"] == "train" for row in rows) == 16
        assert not keep or all(f"/{row['split']}/" in row["path"] for row in rows)
    assert drawn[0] == drawn[1] and len(drawn[0]) == 4


def test_its_heads_are_those_of_safe(options: Options, tmp_path: Path) -> None:
    words = ["train.epochs=1", "ridge.size=50", "device=cpu", "method.pilot=0"]
    line = memory.cell(options(words=words, every=1, features=tmp_path), 0)
    _, found = line["accuracy"]
    assert len(line["ranpac every"]) == len(line["left out"]) == 2
    assert all(len(each) == 2 for each in line["by test"].values())
    kept = load_file(tmp_path / f"{line['features']}.safetensors")
    train, test = ([value for name, value in kept.items() if name.startswith(part)] for part in ("train", "test"))
    assert {len(each) for each in train} == {16} and {len(each) for each in test} == {8}
    last = kept["train_sessions"] == 2
    assert (kept["train_fast"][last] == kept["train_fast_last"][last]).all()
    assert kept["train_sessions"].bincount().tolist() == [0, 8, 8] == [0, *kept["train_targets"].bincount()[::2] * 2]
    assert {"slow", "untuned", *(f"{who} {kind}" for who in ("fast", "safe") for kind in memory.KINDS)} == found.keys()
    assert line["own"] == {"slow": found["slow"], "fast": found["fast gaussians"], "safe": found["safe gaussians"]}
    assert (
        line["sessions"] == 2 and 0 <= line["ranpac"] <= 100 and line["first"]["safe"][0] == line["first"]["ranpac"][0]
    )
