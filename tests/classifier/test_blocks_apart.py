"""A model whose ridge heads read blocks apart: what is done to it later, and what is made of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from safecl.classifier.answers.export import export_onnx
from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.model import Model
from safecl.heads.reading import Reading
from safecl.runtime.model import ExportedModel

New = Callable[..., ContinualClassifier]
Lesson = Callable[..., tuple[np.ndarray, list[Any]]]
APART = {"method.ridge": {"size": 60, "blocks": "apart"}, "beyond": 1.0}


def state_of(model: ContinualClassifier) -> dict[str, torch.Tensor]:
    return model._fitted.method(model._backbone(), learning=True).state_dict()


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(value, other[name]) for name, value in one.items()
    )


@pytest.mark.parametrize("memory", ["statistics", "features"])
def test_a_session_is_taken_back_to_the_bit_and_a_file_says_the_same(
    memory: str, new_model: New, lesson: Lesson, tmp_path: Path
) -> None:
    """Also the weights of the blocks, and the fast learner has those of the slow one."""
    model = new_model(memory=memory, settings=APART)
    model.learn(*lesson("abcd", 6))
    first = state_of(model)
    shown = lesson("abcdef", 2, seed=9)[0]
    said = model.predict_proba(shown)
    model.learn(*lesson("ef", 6, seed=1))
    method = model._fitted.method(model._backbone(), learning=True)
    slow: Any = method.get_submodule("ridge_slow")
    fast: Any = method.get_submodule("ridge_fast")
    assert slow.reading._replace(mirror=False) == fast.reading.once == Reading(2, True)
    assert slow.project.apart and fast.project.apart
    assert slow.weighting == fast.weighting
    model.save(tmp_path / "m.safecl")
    opened = ContinualClassifier.load(tmp_path / "m.safecl", device="cpu")
    assert same(state_of(opened), method.state_dict())
    assert np.array_equal(opened.predict_proba(shown), model.predict_proba(shown))
    opened.rollback()
    assert same(state_of(opened), first)
    assert np.array_equal(opened.predict_proba(shown), said)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["safe", "ranpac"])
def test_exported_answers_are_those_of_the_model(
    method: str, new_model: New, lesson: Lesson, tmp_path: Path
) -> None:
    settings = APART if method == "safe" else {"method.ridge": APART["method.ridge"]}
    model = new_model(method, settings=settings)
    for number, classes in enumerate(("abcd", "ef")):
        model.learn(*lesson(classes, 6, seed=number))
    model.save(tmp_path / "m.safecl")
    export_onnx(Model.open(tmp_path / "m.safecl"), tmp_path / "m.onnx")
    shown = lesson("abcdef", 3, seed=5)[0]
    exported = ExportedModel(tmp_path / "m.onnx").explain(shown)
    for ours, theirs in zip(exported, model.explain(shown), strict=True):
        assert dict(ours.nearest) == pytest.approx(dict(theirs.nearest), abs=1e-4)
