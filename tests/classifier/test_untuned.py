"""A model whose fast learner answers together with the untuned backbone: careful, frozen,
elsewhere, exported.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from safecl.backbone.layers import watching
from safecl.classifier.answers.explain import relevance
from safecl.classifier.answers.export import MAX_DIFFERENCE, export_onnx
from safecl.classifier.answers.queue import Looking
from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.data import unlabelled
from safecl.classifier.model import Model
from safecl.classifier.modelfile.rows import LOOK
from safecl.methods.safe import SAFE
from safecl.runtime.model import ExportedModel
from safecl.streams.pictures.images import ArrayPictures

New = Callable[..., ContinualClassifier]
Lesson = Callable[..., Any]
PICTURE = torch.rand(1, 3, 16, 16)

pytestmark = pytest.mark.usefixtures("untuned")


@pytest.fixture
def model(new_model: New, lesson: Lesson) -> ContinualClassifier:
    model = new_model(settings={"beyond": 0.5})
    model.learn(*lesson("ab"))
    assert list(model._snapshot().method.embed(PICTURE)) == ["slow", "fast"]
    model.learn(*lesson("cd"))
    return model


def test_it_answers_alike_whoever_asks(
    model: ContinualClassifier, lesson: Lesson, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = model._snapshot().method
    images = lesson("abcd", 3, seed=9)[0]
    assert isinstance(method, SAFE) and method.untuned and not method.ridge_slow.weight.numel()
    # as many passes as with the slow learner
    assert list(method.embed(PICTURE)) == [
        "untuned",
        "fast",
    ]
    assert {*model._fitted.state.kept} == {"slow", "untuned", LOOK, "targets", "hashes"}
    assert model._fitted.header["calibration"]["scales"] is not None  # both have a likeness

    mirrored = np.ascontiguousarray(images[:, :, ::-1])
    wanted = (model.decision_function(images) + model.decision_function(mirrored)) / 2
    assert (
        model.predict(images, careful=True).tolist()
        == model.classes_[wanted.argmax(axis=1)].tolist()
    )

    queue = Looking(model._snapshot())
    queue.look(ArrayPictures(images, [None] * len(images)))
    assert len(queue.first(3)) == 3

    model.save(tmp_path / "m.safecl")
    model.save(tmp_path / "f.safecl", frozen=True)
    monkeypatch.undo()  # whoever opens it has no part in how it was taught
    found, frozen = (
        ContinualClassifier.load(tmp_path / f"{name}.safecl", device="cpu") for name in "mf"
    )
    assert np.allclose(found.predict_proba(images), model.predict_proba(images), atol=1e-5)
    # kept in 16 bits
    assert np.allclose(frozen.predict_proba(images), model.predict_proba(images), atol=1e-2)


def test_after_one_session_it_forgets_and_is_joined_as_any_other(
    model: ContinualClassifier, new_model: New, lesson: Lesson
) -> None:
    """Statistics of the untuned backbone are there already, and no head is."""
    images = lesson("abcd", 3, seed=9)[0]
    begun = new_model(settings={"beyond": 0.5})
    begun.learn(*lesson("ab"))
    for change in (
        lambda one: one.forget("a"),
        lambda one: one.join("a", "b"),
        lambda one: one.rename("a", "z"),
    ):
        first, later = (
            ContinualClassifier.of(each._fitted, device="cpu") for each in (begun, model)
        )
        change(first)
        assert list(first._snapshot().method.embed(PICTURE)) == ["slow", "fast"]
        first.learn(*lesson("cd"))
        change(later)
        assert first._fitted.classes == later._fitted.classes
        ours, theirs = (
            torch.cat([each["slow"] for each in one._snapshot().scored(unlabelled(images))])
            for one in (first, later)
        )
        torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-3)


def test_a_session_is_taken_back_to_the_slow_learner(
    model: ContinualClassifier, lesson: Lesson
) -> None:
    images = lesson("ab", 3, seed=9)[0]
    wanted = ContinualClassifier.of(model._fitted, device="cpu")
    model.rollback()
    assert list(model._snapshot().method.embed(PICTURE)) == ["slow", "fast"]
    model.learn(*lesson("cd"))
    assert (model.predict_proba(images) == wanted.predict_proba(images)).all()


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_a_heat_map_is_of_the_networks_that_answer(
    weight: float, new_model: New, lesson: Lesson
) -> None:
    model = new_model(settings={"beyond": 0.5}, image_size=64)  # 4 × 4 patches
    for classes in ("ab", "cd"):
        model.learn(*lesson(classes))
    method: Any = model._snapshot().method
    method.judged.sums = torch.tensor([1.0, 2.0] if weight == 0 else [2.0, 1.0])
    view = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    reading = method.ridge_slow.reading.once
    heat = torch.zeros(4, 4)
    for network, head, share in (
        (method.backbone, method.ridge_untuned, 1 - weight),
        (method.fast, method.ridge_fast, weight),
    ):
        with watching() as seen:
            logit = 10 * share * head.logits(network.read(view, reading))[0, 1]
            (one,) = seen
            values = one.values[len(one.values) // 2 :]
            for gradient, v in zip(torch.autograd.grad(logit, values), values, strict=True):
                heat += (
                    (gradient * v.detach())
                    .sum(dim=3)
                    .relu()
                    .sum(dim=2)[0, one.first :]
                    .reshape(4, 4)
                )
        assert heat.any()  # the untuned backbone's alone, to begin with
    torch.testing.assert_close(relevance(method, view, 1), heat / heat.max())


@pytest.mark.parametrize(
    "precision",
    ["fp32", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("fp16", "int8"))],
)
def test_an_exported_file_answers_as_it_does(
    precision: Any, model: ContinualClassifier, lesson: Lesson, tmp_path: Path
) -> None:
    pytest.importorskip("onnx")
    images = lesson("abcd", 3, seed=9)[0]
    within = {**MAX_DIFFERENCE, "int8": 0.1}[precision]
    model.save(tmp_path / "m.safecl")
    pictures = ArrayPictures(images, [""] * len(images))
    export_onnx(
        Model.open(tmp_path / "m.safecl"), tmp_path / "m.onnx", precision, pictures=pictures
    )
    for ours, theirs in zip(
        ExportedModel(tmp_path / "m.onnx").explain(images), model.explain(images), strict=True
    ):
        assert ours.label == theirs.label and dict(ours.nearest) == pytest.approx(
            dict(theirs.nearest), abs=within
        )
        assert ours.weights == pytest.approx(theirs.weights, abs=within)
        assert ours.unknown == theirs.unknown or precision == "int8"
        assert dict(ours.opinions["slow"]) == pytest.approx(
            dict(theirs.opinions["slow"]), abs=within if precision == "fp32" else 10 * within
        )
