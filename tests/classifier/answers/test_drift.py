"""Has the world of the pictures changed since a model was taught? Whatever answers, and after every
edit.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import safecl
from safecl.classifier.classifier import ContinualClassifier


def darker(images: Any) -> list[np.ndarray]:
    return [(np.asarray(image) // 3).astype(np.uint8) for image in images]


def test_a_model_sees_that_pictures_are_darker_and_answers_as_it_does_alone(
    taught: ContinualClassifier, lesson: Callable[..., Any]
) -> None:
    images, _ = lesson("abcdef", 20, seed=5)
    dark = darker(images)
    assert not taught.drift(images).alarm
    found = taught.drift(dark, before=taught.drift(images[:12]))
    assert found.alarm and found.changes and found.seen == 12 + len(dark)
    now = taught._snapshot()
    alone = [now.explain([image])[0] for image in dark[:6]]
    together = list(now.answers(dark, drift=found))[:6]
    assert [one.label for one in together] == [one.label for one in alone]
    assert np.allclose([one.score for one in together], [one.score for one in alone], atol=1e-3)


def test_a_model_that_has_learned_begins_anew(
    taught: ContinualClassifier, lesson: Callable[..., Any]
) -> None:
    images, labels = lesson("abcdef", 20, seed=5)
    dark = darker(images)
    before = taught.drift(dark)
    model = ContinualClassifier.of(taught._fitted)
    model.learn(dark, labels, tune="never")
    later, _ = lesson("abcdef", 6, seed=8)
    found = model.drift(darker(later), before)
    assert before.alarm and found is not before and not found.alarm
    assert found.seen == len(later)
    assert model.drift(images[:5], found) is found


def test_it_goes_on_under_the_new_names_of_classes(
    taught: ContinualClassifier, lesson: Callable[..., Any]
) -> None:
    dark = darker(lesson("abcdef", 20, seed=5)[0])
    model = ContinualClassifier.of(taught._fitted)
    found = model.drift(dark)
    told = {str(label) for label in found.affected}
    assert told
    for label in sorted(told):
        model.rename(label, label.upper() * 2)
    assert model.drift(dark[:1], found) is found and found.alarm
    assert {str(label) for label in found.affected} == {label.upper() * 2 for label in told}


def test_an_exported_file_says_the_same_of_the_same_pictures(
    exported: tuple[Path, Path], lesson: Callable[..., Any]
) -> None:
    images, _ = lesson("abcdef", 20, seed=5)
    model = ContinualClassifier.load(exported[0], device="cpu")
    file = safecl.load(exported[1])
    for pictures in (images, darker(images)):
        own = model.drift(pictures)
        same = file.drift(pictures)
        assert (own.alarm, own.changes, own.since) == (same.alarm, same.changes, same.since)
        assert same.evidence == pytest.approx(own.evidence, rel=0.05)
    assert own.can_tell and own.alarm


def test_looks_of_kept_pictures_stay_with_them_through_edits_and_the_file(
    taught: ContinualClassifier, lesson: Callable[..., Any], tmp_path: Path
) -> None:
    def looks(model: ContinualClassifier) -> set[tuple[float, ...]]:
        rows = model._fitted.header["calibration"]["looks"]
        return {tuple(look) for own in rows for look in own if look}

    model = ContinualClassifier.of(taught._fitted)
    every = looks(model)
    images, labels = lesson("ef")
    judged = model._fitted.header["calibration"]["pictures"]
    assert len(every) == judged
    model.correct(list(images[:2]), ["e", "e"] if labels[0] != "e" else ["f", "f"])
    assert looks(model) == every
    model.rollback()
    assert looks(model) == every
    model.forget("a")
    assert looks(model) < every
    model.save(tmp_path / "m.safecl")
    again = ContinualClassifier.load(tmp_path / "m.safecl", device="cpu")
    assert looks(again) == looks(model)
    again.learn(*lesson("gh"), tune="never")
    assert looks(model) < looks(again)
    one, other = (ContinualClassifier.load(tmp_path / "m.safecl", device="cpu") for _ in "ab")
    one.learn(*lesson("ij"), tune="never")
    other.learn(*lesson("kl"), tune="never")
    assert looks(one.merged(other)) == looks(one) | looks(other)


def test_predict_says_what_has_changed_and_prints_the_same_answers(
    exported: tuple[Path, Path],
    tmp_path: Path,
    lesson: Callable[..., Any],
    command: Callable[..., tuple[int, str, str]],
) -> None:
    images, _ = lesson("abcdef", 20, seed=5)
    for name, pictures in (("plain", images), ("dark", darker(images))):
        (tmp_path / name).mkdir()
        for i, picture in enumerate(pictures):
            Image.fromarray(np.asarray(picture)).save(tmp_path / name / f"{i:02}.png")
    for file in exported:
        quiet = command("predict", str(tmp_path / "plain"), "--model", str(file))
        dark = command("predict", str(tmp_path / "dark"), "--model", str(file))
        assert "look different" not in quiet[2]
        assert "pictures look different from those taught: they are " in dark[2]
