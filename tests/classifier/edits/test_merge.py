"""Models that learned the same pictures since they parted: compared with one that learned each
once.
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.modelfile.history import counts
from tests.conftest import raises

New = Callable[..., ContinualClassifier]
Lesson = Callable[..., tuple[np.ndarray, list[Any]]]


def parted(base: ContinualClassifier) -> list[ContinualClassifier]:
    return [ContinualClassifier.of(base._fitted, device="cpu") for _ in range(2)]


def state_of(model: ContinualClassifier) -> dict[str, torch.Tensor]:
    return model._fitted.method(model._backbone(), learning=True).state_dict()


@pytest.mark.parametrize(("memory", "keep"), [("statistics", 3), ("features", 0)])
@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("blocks", ["together", "apart"])
def test_pictures_that_both_models_have_learned_are_added_once(
    blocks: str, begun: bool, memory: str, keep: int, new_model: New, lesson: Lesson
) -> None:
    """All of a session, and some of another; as many classes, counts and sums as of one model that
    learned them in turn.
    """
    common, more = lesson("de", 6, seed=1), lesson("f", 6, seed=2)
    given: dict[str, Any] = {"pet": "none", "memory": memory, "keep": keep}
    ridge = {"size": 60, "betas": (0.01, 0.1), "layers": 2, "patches": True, "mirror": True}
    given["settings"] = {"method.ridge": {**ridge, "blocks": blocks}}
    models = [new_model("ranpac", **given) for _ in range(2)]
    if begun:
        models[0].learn(*lesson("abc", 6))
        models = [*parted(models[0])]
    one, other = models
    whole = ContinualClassifier.of(one._fitted, device="cpu") if begun else None
    one.learn(*common)
    one.learn(more[0][:4], more[1][:4])
    other.learn(*common)
    other.learn(*more)
    if whole is None:
        whole = new_model("ranpac", **given)
    whole.learn(*common)
    whole.learn(more[0][:4], more[1][:4])
    whole.learn(more[0][4:], more[1][4:])
    both = one.merged(other)
    assert counts(both._fitted.header) == counts(whole._fitted.header)
    assert len(both._fitted.state.seen["hashes"]) == len(whole._fitted.state.seen["hashes"])
    wanted = state_of(whole)
    for name, value in state_of(both).items():
        if name != "_extra_state":
            assert torch.allclose(value, wanted[name], rtol=1e-5, atol=1e-5), name
    said = both._fitted.header["calibration"]
    assert said["pictures"] == whole._fitted.header["calibration"]["pictures"]
    shown = lesson("abcdef", 2, seed=9)[0]
    assert np.allclose(both.predict_proba(shown), whole.predict_proba(shown), atol=1e-4)
    again = both.learn(*common)
    assert again.pictures == 0 and "nothing new" in again.warnings[0]
    both.correct(common[0][:1], "f")  # and it is corrected as any other
    assert counts(both._fitted.header)["d"] == 5


def test_statistics_of_the_slow_learner_have_a_picture_of_both_once(
    new_model: New, lesson: Lesson
) -> None:
    base = new_model(settings={"beyond": 0})
    base.learn(*lesson("abc"))
    common, more = lesson("d", seed=1), lesson("e", seed=2)
    one, other = parted(base)
    whole = ContinualClassifier.of(base._fitted, device="cpu")
    for model, sessions in ((one, [common]), (other, [common, more]), (whole, [common, more])):
        for session in sessions:
            model.learn(*session)
    both = one.merged(other)
    found, wanted = state_of(both), state_of(whole)
    for name in ("ridge_slow.statistics.gram", "ridge_slow.statistics.sums", "ridge_slow.weight"):
        assert torch.allclose(found[name], wanted[name], rtol=1e-5, atol=1e-5), name
    for name in ("w_slow.counts", "w_slow.sums", "following.kept.counts", "following.kept.means"):
        assert torch.allclose(found[name], wanted[name], atol=1e-5), name
    assert counts(both._fitted.header) == dict.fromkeys("abcde", 5)


def test_a_picture_that_both_models_learned_as_different_classes_is_refused(
    new_model: New, lesson: Lesson
) -> None:
    base = new_model("ranpac", pet="none")
    base.learn(*lesson("abc"))
    one, other = parted(base)
    images, labels = lesson("d", seed=1)
    one.learn(images, labels)
    other.learn(images, [*labels[:3], "a", "e"])
    labels = re.compile("^d in the first, a in the second, d in")
    with raises("merge.labels-differ", count="2 pictures", labels=labels):
        one.merged(other)
    other.correct(images[3:], "d")
    assert counts(one.merged(other)._fitted.header) == {**dict.fromkeys("abcd", 5)}


def test_pictures_of_both_models_whose_features_are_not_kept_are_taken_out_of_one_by_hand(
    new_model: New, lesson: Lesson
) -> None:
    base = new_model("simplecil")
    base.learn(*lesson("ab"))
    one, other = parted(base)
    common = lesson("c", seed=1)
    for model, more in ((one, "d"), (other, "e")):
        model.learn(*common)
        model.learn(*lesson(more, seed=2))
    with raises("merge.learned-twice", count=re.compile("^5 pictures")):
        one.merged(other)
    other.correct(common[0], remove=True)
    assert counts(one.merged(other)._fitted.header) == dict.fromkeys("abcde", 5)
