"""What the benchmark reports of a tiny model."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
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
    model = new_model()
    found = trust.measure(model, sessions, held)
    assert found["left_out"].keys() == found["held_back"].keys() == {"slow", "fast", "safe"}
    assert found["pictures"] == [12, 20]
    assert found["said"] == pytest.approx(found["left_out"]["safe"], abs=1e-4)
    p = model.predict_proba(held)
    sure, correct = p.max(axis=1), model.classes_[p.argmax(axis=1)] == np.array(held.labels)
    assert found["held_back"]["safe"] == pytest.approx(correct.mean(), abs=1e-4) and correct.mean() > 0.5
    bins = [np.floor(sure * 15) == b for b in range(16)]
    apart = sum(abs(sure[rows].sum() - correct[rows].sum()) for rows in bins)
    assert found["calibration_error"] == pytest.approx(apart / 20, abs=1e-4)
    assert abs(found["said"] - found["held_back"]["safe"]) < 0.25  # of 12 and 20 pictures
