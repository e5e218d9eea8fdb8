"""The settings of a model: the same words and the same sentences as those of a run."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from safecl.classifier.classifier import ContinualClassifier
from tests.conftest import raises


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        (
            {"train.lrr": 1},
            partial(
                raises, "name.unknown.near", what="setting", given="train.lrr", near="train.lr"
            ),
        ),
        ({"method.gama": 1}, partial(raises, "name.unknown.near", near="method.answer.gamma")),
        ({"ridge.sise": 1}, partial(raises, "name.unknown.near", near="ridge.size")),
        (
            {"trian.lr": 1},
            partial(raises, "name.unknown.near", what="setting", given="trian", near="train"),
        ),
        (
            {"train.lr": "fast"},
            partial(
                raises,
                "setting.value.wrong",
                key="train.lr",
                given="fast",
                reason=re.compile("a number is needed"),
            ),
        ),
        (
            {"train.lr": -1},
            partial(
                raises,
                "setting.value.wrong",
                key="train.lr",
                given="-1",
                reason=re.compile("it must be above 0"),
            ),
        ),
        ({"pet": "sff"}, partial(raises, "name.unknown.near", what="pet", given="sff", near="ssf")),
        (
            {"memory": "pictures"},
            partial(raises, "name.unknown.near", what="memory =", near="features"),
        ),
        (
            {"method.answer.gamma": 3},
            partial(
                raises,
                "setting.idle",
                key="method.answer.gamma",
                other="method.answer.aggregation",
                value="errors",
            ),
        ),
        (
            {"method.transfer.lambda_rdn": 3},
            partial(
                raises, "setting.idle", setting=re.compile(r"^method\.transfer\.loss=correlation")
            ),
        ),
        (
            {"train.optimiser": "adam", "train.momentum": 0.5},
            partial(raises, "setting.idle", setting="train.optimiser=sgd"),
        ),
        (
            {"train.milestones": [1]},
            partial(
                raises,
                "setting.idle",
                key="train.milestones",
                other="train.schedule",
                value="cosine",
            ),
        ),
        (
            {"train.schedule": "steps", "train.milestones": [2, 9], "epochs": 2},
            partial(raises, "setting.milestones.never", milestones=[2, 9], epochs=2),
        ),
        (
            {"train.schedule": "steps", "train.milestones": [5]},
            partial(raises, "setting.milestones.never", milestones=[5], epochs=5),
        ),
        (
            {"train.schedule": "constant", "train.every": "epoch"},
            partial(raises, "setting.idle", setting=re.compile(r"^train\.schedule=cosine")),
        ),
        (
            {"method": "simplecil", "train.lr": 0.1},
            partial(raises, "setting.no-training", title="SimpleCIL", key="train.lr"),
        ),
        (
            {"method": "simplecil", "train.epochs": 3},
            partial(raises, "setting.no-training", title="SimpleCIL", key="epochs"),
        ),
        (
            {"method": "ranpac", "train.later_lr": 0.1},
            partial(
                raises,
                "setting.no-later-training",
                title="RanPAC",
                key=re.compile(r"^train\.later"),
            ),
        ),
        (
            {"epochs": 3, "train.epochs": 4},
            partial(
                raises, "setting.contradict", other="epochs", there=3, name="train.epochs", value=4
            ),
        ),
    ],
)
def test_a_wrong_setting_is_answered_with_the_nearest_right_one(
    settings: dict[str, object], refused: Callable[[], Any], lesson: Callable[..., Any]
) -> None:
    with refused():
        ContinualClassifier(settings=settings).learn(*lesson("ab"))


@pytest.mark.parametrize(
    ("parameters", "settings", "refused"),
    [
        (
            {"epochs": 2},
            {"train.epochs": 3},
            partial(
                raises, "setting.contradict", other="epochs", there=2, name="train.epochs", value=3
            ),
        ),
        (
            {"pet": "lora"},
            {"pet": "ssf"},
            partial(
                raises,
                "setting.contradict",
                other="pet",
                there="lora",
                name="method.pet.kind",
                value="ssf",
            ),
        ),
        (
            {"seed": 1},
            {"seed": 2},
            partial(raises, "setting.contradict", other="seed", there=1, name="seed", value=2),
        ),
        (
            {"image_size": 32},
            {"backbone": {"image_size": 64}},
            partial(
                raises,
                "setting.contradict",
                other="image_size",
                there=32,
                name="backbone.image_size",
                value=64,
            ),
        ),
        (
            {"method": "simplecil", "epochs": 2},
            {},
            partial(raises, "setting.no-training", title="SimpleCIL", key="epochs"),
        ),
    ],
)
def test_a_parameter_and_a_setting_say_the_same_or_are_refused(
    parameters: dict[str, Any],
    settings: dict[str, object],
    refused: Callable[[], Any],
    lesson: Callable[..., Any],
) -> None:
    with refused():
        ContinualClassifier(**parameters, settings=settings).learn(*lesson("ab"))


@pytest.mark.parametrize(
    ("parameters", "settings", "epochs"),
    [
        ({"epochs": None}, {"train.epochs": 1}, [1, 1]),
        ({"epochs": None}, {"train": {"epochs": 1}}, [1, 1]),
        ({"epochs": 1}, {"epochs": 1}, [1, 1]),
        ({"epochs": 2}, {"train.later_epochs": 1}, [2, 1]),
        ({"epochs": None}, {"train.later_epochs": 1}, [5, 1]),
    ],
)
def test_a_model_trains_the_epochs_that_were_given_by_either_name(
    parameters: dict[str, Any],
    settings: dict[str, object],
    epochs: list[int],
    new_model: Callable[..., Any],
    lesson: Callable[..., Any],
    tmp_path: Path,
) -> None:
    model = new_model(**parameters, settings=settings)
    first = model.learn(*lesson("ab"))
    model.save(tmp_path / "m.safecl")
    second = ContinualClassifier.load(tmp_path / "m.safecl", device="cpu").learn(*lesson("cd"))
    assert [first.epochs, second.epochs] == epochs
    again = new_model(epochs=epochs[0])
    again.learn(*lesson("ab"))
    assert np.array_equal(
        model.decision_function(lesson("ab")[0]), again.decision_function(lesson("ab")[0])
    )


def test_a_backbone_that_a_weight_file_contradicts_is_refused(
    two_blocks: Path, lesson: Callable[..., Any]
) -> None:
    model = ContinualClassifier(
        "small", image_size=16, settings={"backbone.weights": str(two_blocks)}, device="cpu"
    )
    with raises("backbone.name.idle", held="test_vit", name=re.compile("^vit_small_patch14")):
        model.learn(*lesson("ab"))


def test_groups_of_the_method_may_be_written_without_its_name() -> None:
    a = ContinualClassifier(settings={"ridge.size": 60, "pet": "adapter"})._resolved()
    b = ContinualClassifier(pet="adapter", settings={"method.ridge": {"size": 60}})._resolved()
    assert a == b and a.method.pet.kind == "adapter"  # type: ignore[attr-defined]
    c = ContinualClassifier(pet="adapter", settings={"pet.bottleneck": 3})._resolved()
    assert (c.method.pet.kind, c.method.pet.bottleneck) == ("adapter", 3)  # type: ignore[attr-defined]


def test_an_unknown_backbone_is_answered_with_the_sizes(lesson: Callable[..., Any]) -> None:
    with raises(
        "backbone.name.unknown",
        name="nano",
        choices=re.compile("^micro, tiny, small, base, large, or a timm "),
    ):
        ContinualClassifier(backbone="nano").learn(*lesson("ab"))
