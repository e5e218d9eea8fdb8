"""One picture at a time gives the heads that learning all at once gives."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import pytest
import torch

from safecl.heads.solve import Updated, _factor, factored, factors_kept, solve


@pytest.mark.parametrize("memory", ["statistics", "features"])
@pytest.mark.parametrize(
    ("method", "tune"), [("ranpac", "always"), ("safe", "never"), ("safe", "always")]
)
def test_pictures_learned_one_by_one_are_as_those_learned_at_once(
    method: str, tune: Any, memory: str, new_model: Callable[..., Any], lesson: Callable[..., Any]
) -> None:
    """For a given β, and networks that were tuned on the same pictures."""
    images, labels = lesson("abcd", 6)
    more, names = lesson("abcd", 2, seed=1)
    one_by_one, at_once = (new_model(method, memory=memory) for _ in range(2))
    for model in (one_by_one, at_once):
        model.learn(images, labels, tune=tune)
    calibration = one_by_one._fitted.header["calibration"]
    for picture, label in zip(more, names, strict=True):
        said = one_by_one.learn_one(picture, label)
        assert "the mean over classes" not in said  # nothing was judged
    assert one_by_one._fitted.header["calibration"] == calibration
    at_once.correct(more, names)
    there = lesson("abcd", 2, seed=2)[0]
    found = one_by_one.decision_function(there)
    rounding = 1e-5 * np.abs(found).max()
    assert np.allclose(found, at_once.decision_function(there), atol=rounding)

    before = at_once.decision_function(there)
    at_once.learn_one(images[0], "b")
    at_once.learn_one(images[0], "a")
    assert np.allclose(at_once.decision_function(there), before, atol=rounding)
    for _ in more[:3]:
        one_by_one.rollback()


def test_where_the_fast_learner_follows_one_by_one_is_as_a_few_at_once(
    taught: Any, lesson: Callable[..., Any], tmp_path: Path
) -> None:
    """For the map of the last session; a model that is read from its file has the same."""
    more, names = lesson("abg", 2, seed=1)
    there = lesson("abcdefg", 2, seed=2)[0]
    taught.save(tmp_path / "m.safecl", force=True)
    one_by_one = type(taught).of(taught._fitted)
    at_once = type(taught).load(tmp_path / "m.safecl", device="cpu")
    for picture, label in zip(more, names, strict=True):
        assert "the mean over classes" not in one_by_one.learn_one(picture, label)
    at_once.learn_one(more, names)
    found, wanted = (model.decision_function(there) for model in (one_by_one, at_once))
    assert np.allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())
    assert not np.allclose(found[:, :6], taught.decision_function(there), atol=1e-3)


def test_what_is_fitted_to_all_pictures_follows_with_the_next_correction(
    taught: Any, lesson: Callable[..., Any]
) -> None:
    more, names = lesson("ab", 2, seed=1)
    there = lesson("abcdef", 2, seed=2)[0]
    quick, slow = (type(taught).of(taught._fitted) for _ in range(2))
    quick.learn_one(more[:-1], names[:-1])
    for model, rest in ((quick, slice(-1, None)), (slow, slice(None))):
        model.correct(more[rest], names[rest])
    found, wanted = (model.decision_function(there) for model in (quick, slow))
    assert np.allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())


def test_a_new_class_of_one_picture_is_an_answer_and_the_calibration_has_it(
    new_model: Callable[..., Any], lesson: Callable[..., Any]
) -> None:
    model = new_model("ranpac")
    model.learn(*lesson("ab", 6))
    before = model._fitted.header["calibration"]
    (picture,), _ = lesson("c", 1)
    model.learn_one(picture, "c")
    assert model.predict([picture]).tolist() == ["c"]
    now = model._fitted.header["calibration"]
    assert now["classes"] == [*before["classes"], [0, 0, 0]]
    assert now["accuracy"] == before["accuracy"]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_an_old_factor_and_what_was_added_since_solve_as_a_new_one_does(sign: float) -> None:
    random = torch.Generator().manual_seed(0)
    rows = torch.randn(900, 300, generator=random)
    more = torch.randn(4, 300, generator=random) if sign > 0 else rows[:4]
    gram = rows.T @ rows
    sums = torch.randn(300, 3, generator=random)
    after = gram + sign * more.T @ more
    known = Updated.of(_factor(gram, 2.0, factored), gram)
    known = known.and_then(more[:1], torch.full((1,), sign))
    known = known.and_then(more[1:], torch.full((3,), sign))
    with factors_kept() as kept:
        kept.near.append((ref(after), known))
        found = solve(after, sums, 2.1)
        assert not kept.factors  # none was made
    exact = torch.linalg.solve(after.double() + 2.1 * torch.eye(300), sums.double())
    assert torch.allclose(found.double(), exact, rtol=1e-5, atol=1e-9)
