"""The networks learn and answer in the precision that was chosen, and the model says in which."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from safecl.classifier.classifier import ContinualClassifier


def test_a_model_taught_in_bf16_says_so_and_its_sums_are_float32(
    new_model: Callable[..., Any], lesson: Callable[..., Any], tmp_path: Any
) -> None:
    images, labels = lesson("abc", 6)
    found = {}
    for precision in ("fp32", "bf16"):
        model = new_model("ranpac", precision=precision)
        model.learn(images, labels)
        assert model.history_[-1]["precision"] == precision
        tensors = model._fitted.state.tensors.values()
        assert {t.dtype for t in tensors if t.is_floating_point()} == {torch.float32}
        model.save(tmp_path / f"{precision}.safecl")
        found[precision] = model.decision_function(images)
    assert not np.array_equal(found["fp32"], found["bf16"])
    again = ContinualClassifier.load(tmp_path / "bf16.safecl", device="cpu")
    assert np.array_equal(
        again.set_params(precision="bf16").decision_function(images), found["bf16"]
    )
    same = again.set_params(precision="fp32").predict(images) == np.array(labels)
    assert same.mean() > 0.9  # either answers what the other has learned
