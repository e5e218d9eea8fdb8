"""How much a picture looks like those learned, beside RanPAC's logits."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from safecl.classifier.classifier import ContinualClassifier
from safecl.methods.earlier import settings_of_today

SETTINGS = {"method.ridge.size": 60}


def test_its_likeness_is_the_distance_from_the_nearest_mean_and_answers_are_ranpacs(
    new_model: Callable[..., ContinualClassifier], lesson: Callable[..., Any]
) -> None:
    model, plain = (
        new_model(method="ranpac", pet="none", settings={**SETTINGS, "method.likeness": on})
        for on in (True, False)
    )
    for classes in ("abc", "de"):
        for each in (model, plain):
            each.learn(*lesson(classes, 8))
    images, _ = lesson("abcdefg", 3, seed=5)
    assert np.array_equal(model.decision_function(images), plain.decision_function(images))
    assert model.predict(images).tolist() == plain.predict(images).tolist()
    assert plain._fitted.header["calibration"]["scales"] is None
    calibration = model._fitted.header["calibration"]
    assert calibration["scales"] is not None and calibration["strangers"] is not None
    method = model._snapshot().method
    taught, labels = lesson("abc", 8)
    more, others = lesson("de", 8)
    x = torch.from_numpy(model.transform(np.concatenate([taught, more])))
    x = method.last(x).double()
    y = np.array([*labels, *others])
    means = torch.stack([x[y == c].mean(dim=0) for c in "abcde"])
    assert torch.allclose(method.gaussians.means.double(), means, atol=1e-5)
    spread = sum(
        (x[y == c] - x[y == c].mean(dim=0)).T @ (x[y == c] - x[y == c].mean(dim=0)) for c in "abcde"
    )
    covariance = method.gaussians.covariance().double()
    assert torch.allclose(covariance, spread / (len(x) - 5), atol=1e-5)


def test_strangers_stay_judged_by_what_is_learned_through_every_edit(
    new_model: Callable[..., ContinualClassifier], lesson: Callable[..., Any]
) -> None:
    def scores(model: ContinualClassifier) -> list[float]:
        return [answer.score for answer in model.explain(lesson("abg", 3, seed=5)[0])]

    settings = SETTINGS
    begun = new_model(method="ranpac", pet="none", settings=settings)
    begun.learn(*lesson("abc", 8))
    one, other, turn = (ContinualClassifier.of(begun._fitted) for _ in "abc")
    before = scores(one)
    one.learn(*lesson("d", 8))
    other.learn(*lesson("e", 8))
    for c in "de":
        turn.learn(*lesson(c, 8))
    assert np.allclose(scores(one.merged(other)), scores(turn), rtol=1e-3, atol=1e-3)
    one.rollback()
    assert scores(one) == before
    images, labels = lesson("abc", 8)
    wrong = ["b" if label == "a" else "a" for label in labels[:2]]
    one.correct(list(images[:2]), wrong)
    assert scores(one) != before
    one.correct(list(images[:2]), list(labels[:2]))
    assert np.allclose(scores(one), before, rtol=1e-3, atol=1e-3)


def test_a_model_of_before_is_read_without_it() -> None:
    assert settings_of_today({"name": "ranpac"})["likeness"] is False
    assert settings_of_today({"name": "ranpac", "likeness": True})["likeness"] is True
    assert "likeness" not in settings_of_today({"name": "simplecil"})
