"""How far each class is from where the map takes it, in a model that forgets, joins, corrects,
merges and goes back.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from safecl.classifier.answers.calibrate import recalled
from safecl.classifier.answers.export import MAX_DIFFERENCE, export_onnx
from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.model import Model
from safecl.methods.safe import SAFE
from safecl.runtime.model import ExportedModel

New = Callable[..., ContinualClassifier]
Lesson = Callable[..., Any]
NAME = "following.kept.offsets"


@pytest.fixture(scope="module", params=["statistics", "features"])
def model(request: pytest.FixtureRequest, new_model: New, lesson: Lesson) -> ContinualClassifier:
    """Two sessions, with mirror images; what changes it is done to a ``copy``."""
    ridge = {"size": 60, "betas": (0.1,), "layers": 2, "patches": False, "mirror": True}
    made = new_model(memory=request.param, keep=6, settings={"beyond": 0, "method.ridge": ridge})
    made.learn(*lesson("abc", 4))
    made.learn(*lesson("de", 4, seed=1))
    return made


def copy(model: ContinualClassifier) -> ContinualClassifier:
    return ContinualClassifier.of(model._fitted, device="cpu")


def offsets(model: ContinualClassifier) -> dict[Any, Tensor]:
    """By class; the state is that of which the method is made."""
    rows = model._fitted.state.tensors[NAME]
    return dict(zip(model._fitted.classes, rows, strict=True))


def check(model: ContinualClassifier, wanted: dict[Any, Tensor], path: Path) -> None:
    """Its offsets are ``wanted``, before and after a file, and its answers are of the head that
    follows from them.
    """
    found = offsets(model)
    assert found.keys() == wanted.keys()
    assert all(torch.allclose(found[label], wanted[label], atol=1e-6) for label in wanted)
    model.save(path, force=True)
    again = ContinualClassifier.load(path, device="cpu")
    assert torch.equal(again._fitted.state.tensors[NAME], model._fitted.state.tensors[NAME])
    method = again._fitted.method(again._backbone(), learning=True)
    weight = method.ridge_fast.weight.clone()
    method.refresh()
    assert torch.allclose(method.ridge_fast.weight, weight, atol=1e-5 * float(weight.abs().max()))


def test_classes_after_the_first_session_have_an_offset_and_no_others(
    model: ContinualClassifier, tmp_path: Path
) -> None:
    found = offsets(model)
    assert not any(found[label].any() for label in "abc") and all(
        found[label].any() for label in "de"
    )
    check(model, found, tmp_path / "m.safecl")


def test_a_forgotten_class_takes_its_offset_with_it(
    model: ContinualClassifier, tmp_path: Path
) -> None:
    before = offsets(model)
    own = copy(model)
    own.forget("b")
    own.forget("d")
    check(own, {label: before[label] for label in "ace"}, tmp_path / "m.safecl")


def test_joined_classes_have_the_mean_offset_of_their_pictures(
    model: ContinualClassifier, lesson: Lesson, tmp_path: Path
) -> None:
    before = offsets(model)
    own = copy(model)
    own.correct(*lesson("d", 2, seed=3))  # pictures that come in have the offset of their class
    check(own, before, tmp_path / "m.safecl")
    own.join("a", "d")
    wanted = {**before, "a": (4 * before["a"] + 6 * before["d"]) / 10}
    check(own, {label: wanted[label] for label in "abce"}, tmp_path / "m.safecl")


def test_a_picture_with_another_label_takes_its_offset_along_and_a_rollback_is_to_the_bit(
    model: ContinualClassifier, lesson: Lesson, tmp_path: Path
) -> None:
    before = offsets(model)
    own = copy(model)
    images = lesson("de", 4, seed=1)[0]
    past = own._fitted.state.tensors
    own.correct(np.concatenate([images[:2], lesson("x", 1, seed=5)[0]]), ["a", "n", "x"])
    wanted = {**before, "a": before["d"] / 5, "n": before["d"], "x": torch.zeros_like(before["d"])}
    check(own, wanted, tmp_path / "m.safecl")
    own = ContinualClassifier.load(tmp_path / "m.safecl", device="cpu")
    own.split("e", images[4:6], "f")
    check(own, {**wanted, "f": before["e"]}, tmp_path / "m.safecl")
    # classes that are known, of which each gets a part of an offset
    own.learn(*lesson("xa", 3, seed=6))
    assert offsets(own)["x"].any() and not torch.allclose(offsets(own)["a"], wanted["a"])
    assert torch.equal(offsets(own)["e"], before["e"])
    for _ in range(3):
        own.rollback()
    assert own._fitted.state.tensors.keys() == past.keys()
    assert all(torch.equal(value, past[key]) for key, value in own._fitted.state.tensors.items())


def test_merged_models_have_the_offsets_of_both(
    model: ContinualClassifier, lesson: Lesson, tmp_path: Path
) -> None:
    before, (one, other) = offsets(model), (copy(model) for _ in range(2))
    one.learn(*lesson("fd", 3, seed=2))
    other.learn(*lesson("gd", 2, seed=3))
    a = offsets(one)
    b = offsets(other)
    # Of d: 4 pictures in both, 3 more in one and 2 more in the other.
    d = (7 * a["d"] + 6 * b["d"] - 4 * before["d"]) / 9
    wanted = {**before, "d": d, "f": a["f"], "g": b["g"]}
    for pair in ((one, other), (other, one)):
        check(pair[0].merged(pair[1]), wanted, tmp_path / "m.safecl")


def test_features_of_old_pictures_are_recalled_where_their_statistics_are(
    model: ContinualClassifier,
) -> None:
    method = model._fitted.method(model._backbone(), learning=True)
    kept = model._fitted.state.kept
    assert isinstance(method, SAFE) and method.following is not None
    found = recalled(method, kept, torch.arange(len(kept["targets"])))
    by_map = method.following.map(kept["slow"].float())
    width = method.following.kept.width
    rows = method.following.kept.offsets[kept["targets"]]
    assert found["fast"].shape[1] in (width, 2 * width)
    for view in (found["fast"] - by_map).split(width, dim=1):
        assert torch.allclose(view, rows, atol=1e-5)


@pytest.mark.slow
def test_an_exported_file_answers_as_a_model_with_offsets(
    model: ContinualClassifier, lesson: Lesson, tmp_path: Path
) -> None:
    pytest.importorskip("onnx")
    images = lesson("abcde", 3, seed=9)[0]
    model.save(tmp_path / "m.safecl")
    export_onnx(Model.open(tmp_path / "m.safecl"), tmp_path / "m.onnx")
    for ours, theirs in zip(
        ExportedModel(tmp_path / "m.onnx").explain(images), model.explain(images), strict=True
    ):
        assert ours.label == theirs.label and dict(ours.nearest) == pytest.approx(
            dict(theirs.nearest), abs=MAX_DIFFERENCE["fp32"]
        )
        assert dict(ours.opinions["fast"]) == pytest.approx(dict(theirs.opinions["fast"]), abs=1e-3)
