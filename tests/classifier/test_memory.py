"""A model whose fast learner's statistics are made of a memory: merged, forgotten, rolled back, frozen, inspected."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.members import LEARN, PREDICT
from safecl.classifier.store import ModelFile
from safecl.cli.model_tables import facts
from safecl.methods.following import Following
from safecl.methods.safe import SAFE

New = Callable[..., ContinualClassifier]
Lesson = Callable[..., tuple[np.ndarray, list[Any]]]
KINDS = ["following", "stale"]


def method_of(model: ContinualClassifier) -> SAFE:
    fitted = model._fitted
    method = fitted.method(model._backbone(), learning=True)
    assert isinstance(method, SAFE)
    return method


def made(new_model: New, kind: str, **options: Any) -> ContinualClassifier:
    return new_model("safe", settings={"method.answer.statistics": kind}, **options)


def totals(memory: Following) -> tuple[torch.Tensor, torch.Tensor]:
    """How many pictures of each class are remembered (C,), and the sums of their features (C, d)."""
    kept = memory.kept
    return kept.counts, kept.means * kept.counts[:, None]


@pytest.mark.parametrize("memory", ["statistics", "features"])
def test_merged_models_remember_what_either_has_learned(
    memory: str, new_model: New, lesson: Lesson, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safecl.classifier.state.REPLAYED", 0)
    # With features kept for good, no session has to be one that can be rolled back.
    base = made(new_model, "following", memory=memory, keep=0 if memory == "features" else 3)
    base.learn(*lesson("abc"))
    one, other, whole = (ContinualClassifier.of(base._fitted, device="cpu") for _ in range(3))
    for models, classes in (((one, whole), "de"), ((other, whole), "af")):
        for model in models:
            model.learn(*lesson(classes, seed=1))
    both = one.merged(other)
    found, expected = method_of(both).following, method_of(whole).following
    assert found is not None and expected is not None
    places = [both._fitted.classes.index(label) for label in whole._fitted.classes]
    (counts, sums), (wanted, of_whole) = (totals(memory) for memory in (found, expected))
    assert torch.equal(counts[places], wanted)
    assert torch.allclose(sums[places], of_whole, atol=0.02 * float(of_whole.abs().max()))
    assert both.predict_proba(lesson("abcdef", seed=4)[0]).shape[1] == 6


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_rolls_back_forgets_and_goes_on_from_its_file(
    kind: str, new_model: New, lesson: Lesson, tmp_path: Path
) -> None:
    model, images = made(new_model, kind), lesson("abcd", seed=9)[0]
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
    memory = method_of(model).following
    assert (memory is None) is (kind == "stale") and (memory is None or totals(memory)[0].sum() == 15)


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
        said = dict(facts(file)).get("keeps", "")
        assert bool(said) is not frozen
        if not frozen:
            there = [value for key, value in file.tensors(LEARN).items() if key.startswith("following.")]
            assert file.header["memory_bytes"] == sum(value.nbytes for value in there)
            assert bool(there) is (kind != "stale") and ("covariance" in said) is (kind == "following")
        images = lesson("abcd", seed=3)[0]
        twin = ContinualClassifier.load(path, device="cpu")
        assert np.array_equal(twin.predict_proba(images), model.predict_proba(images))
