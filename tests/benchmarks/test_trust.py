"""What the benchmark reports of a tiny model."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def test_a_model_is_compared_with_pictures_held_back(
    new_model: Callable[..., Any], write_folder: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    trust = importlib.import_module("trust")
    for part, seed in (("train", 0), ("test", 1)):
        write_folder(tmp_path / "data" / part, "abcd", 4, seed)
    sessions, held = trust.divided(tmp_path / "data", 4, 3, seed=0, sessions=2)
    assert [len(part) for part in sessions] == [6, 6] and len(held) == 20
    found = trust.measure(new_model(), sessions, held)
    assert found["left_out"].keys() == found["held_back"].keys() == {"slow", "fast", "safe"}
    assert found["pictures"] == [12, 20] and 0 <= found["calibration_error"] <= 1
