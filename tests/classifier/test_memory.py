"""A model whose fast learner's statistics are computed from a memory: forgotten, rolled back,
frozen, inspected.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.model import LEARN, PREDICT
from safecl.classifier.modelfile.store import ModelFile
from safecl.cli.models import facts
from safecl.methods.safe import SAFE

New = Callable[..., ContinualClassifier]
Lesson = Callable[..., tuple[np.ndarray, list[Any]]]
KINDS = ["following", "stale", "shared"]


def method_of(model: ContinualClassifier) -> SAFE:
    fitted = model._fitted
    method = fitted.method(model._backbone(), learning=True)
    assert isinstance(method, SAFE)
    return method


def made(new_model: New, kind: str, **options: Any) -> ContinualClassifier:
    return new_model("safe", settings={"method.answer.statistics": kind}, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_rolls_back_forgets_and_goes_on_from_its_file(
    kind: str, new_model: New, lesson: Lesson, tmp_path: Path
) -> None:
    model = made(new_model, kind)
    images = lesson("abcd", seed=9)[0]
    model.learn(*lesson("ab"))
    model.learn(*lesson("c"))
    before = model.predict_proba(images)
    model.save(tmp_path / "m.safecl")
    again = ContinualClassifier.load(tmp_path / "m.safecl", device="cpu")
    assert np.array_equal(again.predict_proba(images), before)
    again.learn(*lesson("d"))
    model.learn(*lesson("d"))
    assert np.array_equal(again.predict_proba(images), model.predict_proba(images))
    again.rollback()
    assert np.array_equal(again.predict_proba(images), before)
    model.forget("a")
    assert model.predict_proba(images).shape[1] == 3
    following = getattr(method_of(model), "following", None)
    assert (following is None) is (kind != "following") and (
        following is None or following.kept.counts.sum() == 15
    )


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_kept_of_pictures_is_no_part_of_predictions_and_inspect_says_it(
    kind: str, new_model: New, lesson: Lesson, tmp_path: Path
) -> None:
    model = made(new_model, kind)
    model.learn(*lesson("ab"))
    model.learn(*lesson("cd"))
    for name, frozen in (("whole", False), ("frozen", True)):
        path = tmp_path / f"{name}.safecl"
        model._fitted.save(path, frozen=frozen)
        file = ModelFile(path)
        assert not any(key.startswith("following.") for key in file.tensors(PREDICT))
        said = dict(facts(file)).get("of pictures", "")
        assert said.startswith("keeps ") is not frozen
        if not frozen:
            there = [
                value for key, value in file.tensors(LEARN).items() if key.startswith("following.")
            ]
            assert file.header["memory_bytes"] == sum(value.nbytes for value in there)
            assert bool(there) is (kind == "following") and ("covariance" in said) is (
                kind == "following"
            )
        images = lesson("abcd", seed=3)[0]
        twin = ContinualClassifier.load(path, device="cpu")
        assert np.array_equal(twin.predict_proba(images), model.predict_proba(images))
