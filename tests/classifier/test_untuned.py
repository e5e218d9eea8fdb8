"""A model whose fast learner answers together with the untuned backbone: careful, frozen, elsewhere, exported."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.export import export_onnx
from safecl.classifier.model import Model
from safecl.classifier.queue import Looking
from safecl.methods.safe import SAFE
from safecl.runtime.model import ExportedModel
from safecl.streams.pictures.images import ArrayPictures

New, Lesson = Callable[..., ContinualClassifier], Callable[..., Any]
ASK = """
import sys, numpy, safecl
model, images, found = sys.argv[1:]
numpy.save(found, safecl.load(model).predict_proba(numpy.load(images)))
"""
PICTURE = torch.rand(1, 3, 16, 16)

pytestmark = pytest.mark.usefixtures("untuned")


@pytest.fixture
def model(new_model: New, lesson: Lesson) -> ContinualClassifier:
    model = new_model(settings={"method.pilot": 0.5})
    model.learn(*lesson("ab"))
    assert list(model._snapshot().method.embed(PICTURE)) == ["slow", "fast"]
    model.learn(*lesson("cd"))
    return model


def test_it_answers_alike_whoever_asks(model: ContinualClassifier, lesson: Lesson, tmp_path: Path) -> None:
    method, images = model._snapshot().method, lesson("abcd", 3, seed=9)[0]
    assert isinstance(method, SAFE) and method.untuned and not method.ridge_slow.weight.numel()
    assert list(method.embed(PICTURE)) == ["untuned", "fast"]  # as many passes as with the slow learner
    assert {*model._fitted.state.kept} == {"slow", "untuned", "targets", "hashes"}
    assert model._fitted.header["calibration"]["scales"] is not None  # both have a likeness

    mirrored = np.ascontiguousarray(images[:, :, ::-1])
    wanted = (model.decision_function(images) + model.decision_function(mirrored)) / 2
    assert model.predict(images, careful=True).tolist() == model.classes_[wanted.argmax(axis=1)].tolist()

    queue = Looking(model._snapshot())
    queue.look(ArrayPictures(images, [None] * len(images)))
    assert len(queue.first(3)) == 3

    model.save(tmp_path / "m.safecl")
    model.save(tmp_path / "f.safecl", frozen=True)
    np.save(tmp_path / "images.npy", images)
    words = [sys.executable, "-c", ASK, tmp_path / "m.safecl", tmp_path / "images.npy", tmp_path / "p.npy"]
    subprocess.run(words, check=True)
    assert np.allclose(np.load(tmp_path / "p.npy"), model.predict_proba(images), atol=1e-5)
    frozen = ContinualClassifier.load(tmp_path / "f.safecl", device="cpu")
    assert np.allclose(frozen.predict_proba(images), model.predict_proba(images), atol=1e-2)  # kept in 16 bits


@pytest.mark.slow
def test_an_exported_file_answers_as_it_does(model: ContinualClassifier, lesson: Lesson, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    images = lesson("abcd", 3, seed=9)[0]
    model.save(tmp_path / "m.safecl")
    export_onnx(Model.open(tmp_path / "m.safecl"), tmp_path / "m.onnx")
    for ours, theirs in zip(ExportedModel(tmp_path / "m.onnx").explain(images), model.explain(images), strict=True):
        assert ours.label == theirs.label and dict(ours.nearest) == pytest.approx(dict(theirs.nearest), abs=1e-4)
        assert ours.weights == pytest.approx(theirs.weights, abs=1e-4) and ours.unknown == theirs.unknown
        assert dict(ours.opinions["slow"]) == pytest.approx(dict(theirs.opinions["slow"]), abs=1e-3)
