"""What tuning is expected to take and to gain, and what a session is made of."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from safecl.classifier.pays import (
    MIN_POINTS,
    MOST_OF_ERROR,
    MOST_OF_LATER_ERROR,
    Look,
    Worth,
    expected,
    of_tuning,
    plan,
)
from safecl.engine.settings import TrainSettings
from safecl.methods.catalog import method_settings

SAFE = method_settings()["safe"](name="safe")


def test_tuning_that_has_little_to_gain_does_not_pay_and_what_nobody_can_judge_does() -> None:
    good = Look(100, 0.01, 1 - 0.9 * MIN_POINTS / 100 / MOST_OF_ERROR)
    poor = Look(100, 0.001, 0.5)
    unknown = Look(100, 0.01, None)
    train = TrainSettings(epochs=2)
    assert not expected(good, SAFE, train, True, None).pays
    assert expected(poor, SAFE, train, True, None).pays
    assert not expected(replace(good, accuracy=0.99), SAFE, train, False, None).pays
    assert expected(good, SAFE, train, True, None).points == pytest.approx(0.9 * MIN_POINTS)
    later = expected(good, SAFE, train, False, None).points
    assert later == pytest.approx(0.9 * MIN_POINTS * MOST_OF_LATER_ERROR / MOST_OF_ERROR)
    assert not expected(poor, SAFE, train, True, 0.0).pays  # pilots gain nothing
    assert expected(unknown, SAFE, train, True, None).pays


def test_seconds_grow_with_pictures_epochs_and_pilots() -> None:
    train = TrainSettings(epochs=2, later_epochs=4)
    one = expected(Look(100, 0.01, 0.5), SAFE, train, True, None)
    assert expected(Look(200, 0.01, 0.5), SAFE, train, True, None).seconds == 2 * one.seconds
    later = expected(Look(100, 0.01, 0.5), SAFE, train, False, None)
    assert later.seconds == pytest.approx(2 * one.seconds / SAFE.passes(True))
    assert expected(Look(100, 0.01, 0.5), SAFE, train, True, 0.1).points == pytest.approx(5.0)


def test_points_and_seconds_are_said() -> None:
    assert Worth(40.2, 1.02).words == "tuning would take about 40 s and gain about 1 point"
    assert Worth(3, 0.44).words == "tuning would take about 3 s and gain about 0.4 points"


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("train.lr", True),
        ("epochs", True),
        ("method.pet.kind", True),
        ("method.ridge.size", False),
        ("keep", False),
    ],
)
def test_a_setting_says_how_to_tune_or_not(key: str, said: bool) -> None:
    assert of_tuning(key) is said


@pytest.mark.parametrize(
    ("begun", "tuned", "tune", "sure", "waited", "answers", "tunes", "asks"),
    [
        (False, True, "auto", False, False, True, True, True),
        (False, True, "auto", True, False, False, True, False),
        (False, True, "always", True, True, True, True, False),
        (False, True, "never", False, True, True, False, False),
        (True, True, "auto", False, False, True, True, True),
        (True, False, "auto", False, False, True, False, False),
    ],
)
def test_a_session_has_the_steps_that_it_needs(
    begun: bool,
    tuned: bool,
    tune: Any,
    sure: bool,
    waited: bool,
    answers: bool,
    tunes: bool,
    asks: bool,
) -> None:
    found = plan(SAFE, begun, tuned, tune, sure, waited)
    assert (found.answers, found.tunes) == (answers, tunes)
    assert not tunes or found.asks is asks


@pytest.mark.parametrize("gain", [0.0, 0.9])
def test_pilots_have_the_last_word(
    gain: float, new_model: Callable[..., Any], lesson: Callable[..., Any], monkeypatch: Any
) -> None:
    """They gain nothing of the error, or most of it; the pictures leave some to gain."""
    from safecl.classifier.classifier import ContinualClassifier
    from safecl.engine.fit import Trainer

    class Asks(ContinualClassifier):
        def _asks_tuning(self) -> bool:
            return False

    said = Trainer.piloted
    monkeypatch.setattr(Trainer, "piloted", lambda self, found: said(self, gain))
    model = Asks(**new_model(settings={"beyond": True}).get_params())
    images, labels = lesson("abcd", 6)
    wrong = [*"bcda" * 2, *labels[8:]]  # so that it errs
    told = model.learn(images, wrong)
    assert model._fitted.tuned is (gain > 0)
    assert ("skipped" in told.tuning) is (gain == 0)
