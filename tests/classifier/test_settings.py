"""The settings of a model: the same words and the same sentences as those of a run."""

from collections.abc import Callable
from typing import Any

import pytest

from safecl.classifier.classifier import ContinualClassifier
from safecl.errors import SafeclError


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"train.lrr": 1}, "no setting 'train.lrr'; did you mean 'train.lr'"),
        ({"method.gama": 1}, "did you mean 'method.answer.gamma'"),
        ({"ridge.sise": 1}, "did you mean 'ridge.size'"),
        ({"trian.lr": 1}, "no setting 'trian'; did you mean 'train'"),
        ({"train.lr": "fast"}, "train.lr=fast is wrong: a number is needed"),
        ({"train.lr": -1}, "train.lr=-1 is wrong: it must be above 0"),
        ({"pet": "sff"}, "no pet 'sff'; did you mean 'ssf'"),
        ({"memory": "pictures"}, "memory"),
        ({"method.answer.gamma": 3}, "gamma means nothing with method.answer.aggregation=errors"),
        ({"method.transfer.lambda_rdn": 3}, "omit it, or set method.transfer.loss=correlation"),
    ],
)
def test_a_wrong_setting_is_answered_with_the_nearest_right_one(settings: dict[str, object], said: str) -> None:
    with pytest.raises(SafeclError, match=said):
        ContinualClassifier(settings=settings)._resolved()


def test_groups_of_the_method_may_be_written_without_its_name() -> None:
    a = ContinualClassifier(settings={"ridge.size": 60, "pet": "adapter"})._resolved()
    b = ContinualClassifier(pet="adapter", settings={"method.ridge": {"size": 60}})._resolved()
    assert a == b and a.method.pet.kind == "adapter"  # type: ignore[attr-defined]
    c = ContinualClassifier(pet="adapter", settings={"pet.bottleneck": 3})._resolved()
    assert (c.method.pet.kind, c.method.pet.bottleneck) == ("adapter", 3)  # type: ignore[attr-defined]


def test_an_unknown_backbone_is_answered_with_the_sizes(lesson: Callable[..., Any]) -> None:
    with pytest.raises(SafeclError, match="no backbone 'tiny'; choose one of micro, small, base, large, or a timm ViT"):
        ContinualClassifier(backbone="tiny").learn(*lesson("ab"))
