"""The benchmark of pilots: what it measures, and that its rule is the one of SAFE."""

import argparse
import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pytest

from safecl.heads.leave_one_out import MATTERS
from safecl.methods.pilot import SHARES
from safecl.methods.safe import SAFE

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import pilots

Options = Callable[..., argparse.Namespace]


def test_every_share_with_and_without_transfer(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    loss = SAFE.slow_loss
    monkeypatch.setattr(
        SAFE, "slow_loss", lambda self, transfer, *of: asked.append(transfer) or loss(self, transfer, *of)
    )
    words = ["train.epochs=2", "ridge.size=50", "device=cpu"]
    line = pilots.cell(options(first=4, classes=None, lengths="0.5,1", words=words), 0)
    assert {(e["length"], e["half"], e["way"]) for e in line["errors"]} == {
        (length, half, way) for length in (0.5, 1.0) for half in (0, 1) for way in ("plain", "transfer")
    }
    assert all(len(e["errors"]) == len(SHARES) and min(e["errors"]) > 0 for e in line["errors"])
    assert line["accuracy"]["plain"][-1] == line["accuracy"]["transfer"][-1]  # nothing of the tuning is left
    assert all(len(found) == len(SHARES) for found in line["accuracy"].values())
    # Four times a pilot without it and one with it; then the slow learner without it, and with it.
    assert [transfer for transfer, _ in groupby(asked)] == [False, True] * 5


@pytest.mark.parametrize("gain", [MATTERS / 4, MATTERS])
def test_what_is_taken_back_must_pay(gain: float) -> None:
    errors = {"plain": [1.0] * 5, "transfer": [1.0, 1.0, 1.0 - gain, 1.0, 1.0]}
    line = {"errors": [{"length": 0.75, "half": 0, "way": way, "errors": found} for way, found in errors.items()]}
    line["accuracy"] = {"plain": [1, 2, 3, 4, 5], "transfer": [6, 7, 8, 9, 10]}  # type: ignore[assignment]
    assert pilots.least(line, 0.75, (0,), MATTERS) == (8 if gain == MATTERS else 1)
