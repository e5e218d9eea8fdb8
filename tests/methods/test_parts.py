"""What edits and merging need of a method follows from its parts."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.heads.ridge import RidgeHead
from safecl.heads.settings import RidgeSettings
from safecl.methods import parts
from safecl.methods.catalog import make_method, method_settings
from safecl.methods.experts import Ensemble, Expert
from safecl.methods.method import Method
from safecl.methods.settings.base import MethodSettings
from tests.conftest import raises

TARGETS = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])


class Bare(Ensemble):
    """A method that lists an expert, and says nothing else of its parts."""

    outputs = ("bare",)

    def __init__(self, backbone: Backbone, settings: MethodSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.ridge = RidgeHead(backbone.width, RidgeSettings(size=40), seed)

    def experts(self) -> dict[str, Expert]:
        return {"backbone": Expert("backbone", "ridge", {"backbone": self.backbone}, self.ridge)}

    def learn(self, *_: Any) -> None:
        raise AssertionError("the test adds to the head")

    def answer(self, features: Mapping[str, Tensor], left_out: Any = None) -> dict[str, Tensor]:
        return {"bare": self.experts()["backbone"].logits(features)}


@pytest.fixture
def features(backbone: Backbone) -> Tensor:
    random = torch.Generator().manual_seed(5)
    return torch.randn(len(TARGETS), backbone.width, generator=random)


@pytest.fixture
def bare(backbone: Backbone) -> Callable[..., Bare]:
    def make(features: Tensor, targets: Tensor) -> Bare:
        method = Bare(backbone, method_settings()["simplecil"]())
        method.ridge.add(features, targets)
        return method

    return make


def test_a_method_that_lists_experts_is_corrected_joined_and_forgets_without_a_line_of_its_own(
    bare: Callable[..., Bare], features: Tensor
) -> None:
    right = TARGETS.clone()
    right[3] = 1
    method = bare(features, TARGETS)
    parts.correct(method, {"ridge": features[3:4]}, TARGETS[3:4], right[3:4])
    torch.testing.assert_close(sums(method), sums(bare(features, right)))
    parts.join(method, 0, 1)
    parts.drop_class(method, 1)
    joined = torch.where(right == 2, 1, 0)
    torch.testing.assert_close(sums(method), sums(bare(features, joined)))


def test_two_models_of_it_become_one(bare: Callable[..., Bare], features: Tensor) -> None:
    before = bare(features[:3], TARGETS[:3])
    one = bare(features[:5], TARGETS[:5])
    now = bare(torch.cat([features[:3], features[5:]]), torch.cat([TARGETS[:3], TARGETS[5:]]))
    parts.merge(one, now, before, torch.arange(3))
    torch.testing.assert_close(sums(one), sums(bare(features, TARGETS)))


def sums(method: Bare) -> Tensor:
    return method.ridge.statistics.sums


def made(name: str, backbone: Backbone, **settings: Any) -> Method:
    return make_method(method_settings()[name].model_validate(settings), backbone)


def said(method: Method) -> dict[str, tuple[Any, ...]]:
    return {part.name: (part.kind, part.merge, part.reads) for part in method.parts()}


def test_of_safe_both_learners_are_trained_and_one_goes_on(backbone: Backbone) -> None:
    found = said(made("safe", backbone))
    assert found["slow"] == ("trained", "keep", ())
    assert found["fast"] == ("trained", "average", ())
    assert found["ridge_slow"] == ("sum", "keep", ("slow",))
    assert found["w_fast"] == ("trained", "average", ("fast",))


def test_statistics_that_follow_are_no_sums_but_evidence_is_collected(backbone: Backbone) -> None:
    method = made("safe", backbone, **following(True))
    found = said(method)
    assert found["ridge_fast"] == ("evidence", "keep", ("fast",))
    assert found["following.kept"] == ("sum", "keep", ("ridge_slow",))
    assert "ridge_fast" not in parts.reads_of(method)
    assert parts.heads_of(method) == {"slow": "ridge_slow", "fast": "ridge_fast"}
    assert parts.moving_of(method) == {"fast"}
    assert "ridge_fast" in parts.reads_of(made("safe", backbone, **following(False)))


def following(on: bool) -> dict[str, Any]:
    return {"answer": {"statistics": "following" if on else "stale"}}


@pytest.mark.parametrize("name", ["lae", "tuna", "mos", "ease", "loranpac", "l2p"])
def test_what_was_trained_on_labels_is_not_corrected(name: str, backbone: Backbone) -> None:
    method = made(name, backbone)
    assert "refuse" in {part.merge for part in method.parts()}
    with raises("correct.trained-part"):
        parts.correct(method, {}, torch.zeros(1).long(), torch.ones(1).long())


@pytest.mark.parametrize("name", ["simplecil", "aper", "ranpac", "joint", "safe"])
def test_what_is_made_of_sums_is_merged(name: str, backbone: Backbone) -> None:
    assert "refuse" not in {part.merge for part in made(name, backbone).parts()}
