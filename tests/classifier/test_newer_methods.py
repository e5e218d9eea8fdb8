"""Models of methods that have no sums over pictures: what they do, and what they refuse."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from safecl.classifier.classifier import ContinualClassifier
from tests.conftest import raises

MERGING = {
    "loranpac": "merge.cut-off",
    "mos": "merge.no-network",
    "rsiat": "merge.no-network",
    "tuna": "merge.no-network",
}


@pytest.mark.parametrize("name", MERGING)
def test_a_model_forgets_classes_and_refuses_what_it_has_no_sums_for(
    name: str, new_model: Callable[..., Any], lesson: Callable[..., Any], tmp_path: Path
) -> None:
    model = new_model(name)
    model.learn(*lesson("ab"))
    other = ContinualClassifier.of(model._fitted, device="cpu")
    told = model.learn(*lesson("ca", seed=1))
    other.learn(*lesson("d"))
    assert told.accuracy is None and any("not calibrated" in warning for warning in told.warnings)
    images, _ = lesson("ab")
    for change in (lambda: model.correct(images[:1], "b"), lambda: model.join("a", "b")):
        with raises("correct.trained-part"):
            change()
    with raises(MERGING[name]):
        model.merged(other)
    shown = lesson("abc", seed=5)[0]
    model.forget("b")
    assert model.classes_.tolist() == ["a", "c"]
    after = model.predict_proba(shown)
    assert after.shape == (len(shown), 2) and np.allclose(after.sum(axis=1), 1, atol=1e-5)
    model.save(tmp_path / "frozen.safecl", frozen=True)  # without what predictions do not need
    frozen = ContinualClassifier.load(tmp_path / "frozen.safecl", device="cpu")
    assert np.array_equal(frozen.predict_proba(shown), after)
