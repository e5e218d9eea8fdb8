"""Every preset of a paper × PET × dataset has the published values, by a table that is written here
by hand.
"""

import re
from typing import Any

import pytest

from safecl.experiments.config import load
from safecl.settings import flatten
from tests.conftest import raises

IN1K = "vit_base_patch16_224.augreg_in21k_ft_in1k"
IN21K = "vit_base_patch16_224.augreg_in21k"
PAPER = ("cifar100", "imagenet-r", "imagenet-a", "cub", "omnibenchmark", "vtab", "domainnet")
# The backbone and the PET that RanPAC, and SAFE after it, choose for each dataset.
CHOICE = {
    "cifar100": (IN21K, "adapter"),
    "imagenet-r": (IN1K, "ssf"),
    "imagenet-a": (IN1K, "ssf"),
    "cub": (IN1K, "adapter"),
    "omnibenchmark": (IN21K, "vpt_deep"),
    "vtab": (IN1K, "ssf"),
    "domainnet": (IN1K, "adapter"),
    "cars": (IN21K, "vpt_deep"),
    "core50": (IN1K, "adapter"),
}
PETS: dict[str, dict[str, Any]] = {
    "adapter": {
        "bottleneck": 64,
        "scale": 0.1,
        "learn_scale": False,
        "dropout": 0.1,
        "activation": "relu",
        "place": "mlp",
        "blocks": None,
    },
    "ssf": {"deviation": 0.02},
    "vpt_deep": {"tokens": 5, "rate": 1},
    "vpt_shallow": {"tokens": 5, "rate": 1},
}
SGD = {
    "train.optimiser": "sgd",
    "train.momentum": 0.9,
    "train.lr": 0.01,
    "train.weight_decay": 5e-4,
    "train.epochs": 20,
    "train.batch_size": 48,
    "train.schedule": "cosine",
    "train.every": "epoch",
    "train.clip": None,
    "train.guard": False,
    "precision": "fp32",
    "backbone.normalisation": "none",
}
RIDGE = {"ridge.size": 10_000, "ridge.scale": "absolute", "ridge.evidence": "session"}
RIDGE |= {"ridge.layers": 1, "ridge.patches": False, "ridge.mirror": False}
WIDE = [10.0**i for i in range(-8, 9)]
NARROW = [10.0**i for i in range(3, 9)]
PRINTED = {
    "transfer.lambda_diag": 0.1,
    "transfer.lambda_rdn": 100,
    "guide.lambda_cos": 50,
    "guide.lambda_cross": 1,
    "answer.gamma": 1,
    "scale": 1,
    "answer.temperature": 1,
    "transfer.loss": "correlation",
    "transfer.reduction": "mean",
    "guide.cos_reduction": "mean",
    "guide.cross_pooling": "two_means",
    "cosine.slow_rows": "imprint",
    "cosine.new_rows": "imprint",
    "answer.statistics": "stale",
    "answer.aggregation": "entropy",
    "guide.teacher": "slow",
    "cosine.reset_scale": False,
}
RELEASED = {
    "transfer.lambda_diag": 0.01,
    "transfer.lambda_rdn": 10,
    "guide.lambda_cos": 1,
    "guide.lambda_cross": 0,
    "answer.gamma": 100,
    "scale": 10,
    "answer.temperature": "learned",
    "transfer.loss": "correlation",
    "transfer.reduction": "sum",
    "guide.cos_reduction": "sum",
    "guide.cross_pooling": "concat",
    "cosine.slow_rows": "keep",
    "cosine.new_rows": "zero",
    "answer.statistics": "shared",
    "answer.aggregation": "entropy",
    "guide.teacher": "slow",
    "cosine.reset_scale": True,
}
RELEASED_CIFAR = {
    "transfer.lambda_diag": 5e-10,
    "transfer.lambda_rdn": 5e-9,
    "guide.lambda_cos": 0.5,
    "guide.lambda_cross": 1,
    "answer.gamma": 1,
}
NONE_OF_OURS = dict.fromkeys(
    ("pilots.use", "limit.use", "average.use", "release.use", "untuned.use"), False
)


def method(values: dict[str, Any]) -> dict[str, Any]:
    return {f"method.{key}": value for key, value in values.items()}


def expected(preset: str, dataset: str, pet: str) -> dict[str, Any]:
    """What the run must have; the datasets of ``published`` are the two whose configurations were
    released.
    """
    backbone, _ = CHOICE[dataset]
    same = {
        "method.pet.kind": pet,
        **{f"method.pet.{key}": value for key, value in PETS.get(pet, {}).items()},
    }
    if preset == "aper":
        rates = {
            "train.epochs": 20,
            "train.lr": 0.01,
            "train.batch_size": 48,
            "train.weight_decay": 5e-4,
        }
        if pet == "vpt_deep" and dataset in ("cifar100", "cub", "imagenet-a", "imagenet-r", "vtab"):
            rates |= {"train.epochs": 5, "train.lr": 0.05, "train.batch_size": 16}
        if pet == "adapter" and dataset == "imagenet-r":
            rates |= {"train.lr": 0.05, "train.batch_size": 24, "train.weight_decay": 5e-3}
        if pet == "full":
            rates |= {"train.epochs": 5, "train.batch_size": 128}
        return {
            **same,
            **rates,
            "train.optimiser": "sgd",
            "train.momentum": 0.9,
            "train.schedule": "cosine",
            "train.every": "epoch",
            "train.clip": None,
        }
    same |= {
        **SGD,
        **method(RIDGE),
        "method.ridge.betas": NARROW if preset == "published" else WIDE,
    }
    if preset == "ranpac-published":
        return {**same, "backbone.name": backbone, "method.scale": 1}
    same |= method(NONE_OF_OURS) | {"train.later_clip": None}
    if preset == "paper":
        return {**same, **method(PRINTED), "backbone.name": backbone, "train.later_epochs": None}
    cifar = dataset == "cifar100"
    return {
        **same,
        **method({**RELEASED, **(RELEASED_CIFAR if cifar else {})}),
        "train.later_epochs": 15,
        "train.later_horizon": 20,
        "backbone.name": IN21K if cifar else IN1K,
    }


RUNS = [
    (preset, dataset, pet)
    for preset, pets in (
        ("paper", [*PETS]),
        ("published", [*PETS]),
        ("ranpac-published", [*PETS]),
        ("aper", [*PETS, "full"]),
    )
    for dataset in (*PAPER, *(("cars", "core50") if preset == "ranpac-published" else ()))
    for pet in pets
]


def test_every_preset_pet_and_dataset_has_the_values_that_were_published() -> None:
    wrong = {}
    for preset, dataset, pet in RUNS:
        found = flatten(load(preset, [f"stream={dataset}", f"pet={pet}"]).model_dump(mode="json"))
        wanted = expected(preset, dataset, pet)
        differs = {
            key: (found.get(key), value)
            for key, value in wanted.items()
            if found.get(key, "?") != value
        }
        if differs:
            wrong[preset, dataset, pet] = differs
    assert len(RUNS) == 2 * 28 + 36 + 35 and wrong == {}


@pytest.mark.parametrize("preset", ["paper", "ranpac-published"])
def test_a_dataset_without_a_word_on_the_pet_has_the_papers_own_choice(preset: str) -> None:
    for dataset in (*PAPER, *(("cars", "core50") if preset == "ranpac-published" else ())):
        settings = load(preset, [f"stream={dataset}"])
        assert (settings.backbone.name, settings.pet) == CHOICE[dataset]
        found = flatten(settings.model_dump(mode="json"))
        wanted = expected(preset, dataset, settings.pet)
        assert {key: found[key] for key in wanted} == wanted


def test_a_value_of_a_variant_that_another_kind_would_drop_is_refused(tmp_path: Any) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "method: safe\npet: adapter\nvariants:\n  - {when: {pet: ssf}, pet: {deviation: 0.02}}\n"
    )
    assert load(str(file)).pet == "adapter"  # the variant does not fit
    with raises(
        "preset.variant.dropped",
        group="pet",
        lost="deviation",
        tag=re.compile("^kind"),
        kind="ssf",
        value=re.compile(r"^0\.02"),
    ):
        load(str(file), ["pet=ssf"])
    assert load(str(file), ["pet=ssf", "pet.deviation=0.1"]).method.pet.deviation == 0.1  # type: ignore[attr-defined]
    file.write_text(file.read_text().replace("deviation: 0.02", "kind: ssf, deviation: 0.02"))
    assert load(str(file), ["pet=ssf"]).method.pet.deviation == 0.02  # type: ignore[attr-defined]


def test_a_value_of_a_variant_stays_where_nothing_says_another_kind(tmp_path: Any) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("method: safe\nvariants:\n  - {when: {pet: ssf}, pet: {deviation: 0.02}}\n")
    assert load(str(file), ["pet=ssf"]).method.pet.deviation == 0.02  # type: ignore[attr-defined]
    with raises("setting.group", key=re.compile("pet$")):
        load("paper", ["pet=5"])


def test_a_value_of_a_variant_of_a_method_is_used_or_refused(tmp_path: Any) -> None:
    file = tmp_path / "mine.yaml"
    variant = "variants:\n  - {when: {method: ranpac}, method: {scale: 3}}\n"
    file.write_text(variant)
    assert load(str(file), ["method=ranpac"]).method.scale == 3  # type: ignore[attr-defined]
    file.write_text(f"method: safe\n{variant}")
    with raises(
        "preset.variant.dropped",
        group="method",
        lost="scale",
        tag=re.compile("^name"),
        kind="ranpac",
        value=re.compile("^3"),
    ):
        load(str(file), ["method=ranpac"])
    file.write_text(file.read_text().replace("scale: 3", "name: ranpac, scale: 3"))
    assert load(str(file), ["method=ranpac"]).method.scale == 3  # type: ignore[attr-defined]
