"""A service on a model whose fast learner answers together with the untuned backbone."""

from pathlib import Path
from typing import Any

import pytest

from safecl.classifier.classifier import ContinualClassifier

from .conftest import Service, text


@pytest.mark.slow
@pytest.mark.usefixtures("untuned")
def test_it_answers_learns_and_corrects_as_the_model_does(
    new_model: Any, lesson: Any, start: Any, tmp_path: Path
) -> None:
    """The process that learns has no part in this one: what it does with the file is compared."""
    model = new_model(settings={"beyond": 0.5})
    for number, classes in enumerate(("abc", "d")):
        model.learn(*lesson(classes, 6, seed=number))
    model.save(tmp_path / "m.safecl")
    with start(tmp_path / "m.safecl") as service:
        check(service)
        learned = service.job("learn", service.taught("e", 6, seed=3))
        assert learned["state"] == "done" and learned["result"]["new"] == ["e"], learned
        check(service)
        corrected = service.job("correct", service.taught("e", 2, seed=3, label="a"))
        assert corrected["state"] == "done", corrected
        check(service)
        assert service.job("rollback")["state"] == service.job("rollback")["state"] == "done"
        found = ContinualClassifier.load(service.path, device="cpu")
        wanted = model._fitted
        assert found._fitted.header["history"] == wanted.header["history"]
        assert all(
            value.equal(found._fitted.state.tensors[name])
            for name, value in wanted.state.tensors.items()
        )


def check(service: Service) -> None:
    """The answers are those of the file, whoever asks."""
    model = ContinualClassifier.load(service.path, device="cpu")
    images = service.draw("abcde", 2, 9)[0]
    method: Any = model._snapshot().method
    assert method.untuned and not method.ridge_slow.weight.numel()
    body = {"pictures": list(map(text, service.pictures("abcde", 2)))}
    answers = service.client.post("/api/models/m/predict?detail=1", json=body).json()["answers"]
    for found, one in zip(answers, model.explain(images), strict=True):
        assert found["label"] == one.label and found["unknown"] == one.unknown
        assert dict(found["opinions"]["slow"]) == pytest.approx(
            dict(one.opinions["slow"]), abs=1e-4
        )
        assert found["weights"] == pytest.approx(one.weights, abs=1e-4)
