"""The presets have the values of the papers and of released code, dataset by dataset."""

from typing import Any

import pytest

from safecl.experiments.config import load, presets
from safecl.methods.catalog import method_settings
from safecl.settings import flatten

IN21K = "backbone=vit_base_patch16_224.augreg_in21k"
ADAM = {"train.optimiser": "adam", "train.weight_decay": 0}
VALUES: dict[str, dict[str, Any]] = {
    "l2p stream=cifar100": {
        **ADAM,
        "train.lr": 0.03 * 16 / 256,
        "train.epochs": 5,
        "train.batch_size": 16,
        "train.schedule": "constant",
        "train.clip": 1.0,
        "method.pool": 10,
        "method.length": 5,
        "method.top_k": 5,
        "method.pull": 0.1,
        "method.batchwise": "never",
    },
    "l2p stream=imagenet-r": {"train.epochs": 10, "train.batch_size": 32, "train.clip": None},
    "dualprompt stream=cifar100": {
        **ADAM,
        "train.lr": 0.03 * 24 / 256,
        "train.epochs": 5,
        "train.batch_size": 24,
        "train.clip": 1.0,
        "method.pull": 1.0,
        "method.e_length": 5,
        "method.mixed_reshape": False,
        "method.batchwise": False,
    },
    "dualprompt stream=imagenet-r": {
        "train.lr": 0.005 * 24 / 256,
        "train.epochs": 50,
        "method.e_length": 20,
    },
    "coda stream=cifar100": {
        **ADAM,
        "train.lr": 1e-3,
        "train.epochs": 20,
        "train.batch_size": 128,
        "train.schedule": "quarter_cosine",
        "train.later_clip": None,
        "method.length": 8,
        "method.blocks": 5,
    },
    "coda stream=imagenet-r": {"train.epochs": 50},
    "coda stream=domainnet": {"train.epochs": 5},
    "siprompts stream=domainnet": {
        "train.lr": 0.01,
        "train.epochs": 30,
        "train.batch_size": 128,
        "train.weight_decay": 5e-4,
        "train.later_weight_decay": 2e-4,
        "method.length": 10,
        "method.centres": 5,
    },
    "ease stream=cifar100": {
        "train.lr": 0.025,
        "train.batch_size": 48,
        "train.weight_decay": 5e-4,
        "train.epochs": 20,
        "method.alpha": 0.1,
        "method.pet.bottleneck": 64,
        "method.beta": 0,
    },
    "ease stream=imagenet-r": {
        "train.lr": 0.05,
        "train.batch_size": 16,
        "train.weight_decay": 5e-3,
    },
    "ease stream=imagenet-a": {
        "train.lr": 0.05,
        "train.batch_size": 32,
        "train.weight_decay": 5e-3,
    },
    "ease stream=cub": {
        "train.lr": 0.005,
        "train.batch_size": 16,
        "method.alpha": 0.005,
        "method.beta": 1,
    },
    f"ease stream=cub {IN21K}": {
        "train.lr": 0.008,
        "train.batch_size": 32,
        "method.alpha": 0.05,
        "method.beta": 0,
    },
    "ease stream=omnibenchmark": {
        "train.lr": 0.01,
        "train.batch_size": 16,
        "method.name": "aper",
        "method.pet.bottleneck": 64,
        "method.scale": 1,
    },
    "ease stream=vtab": {
        "train.lr": 0.03,
        "train.batch_size": 16,
        "train.weight_decay": 5e-3,
        "train.epochs": 45,
        "method.pet.bottleneck": 16,
    },
    "ssiat stream=cifar100": {
        "train.lr": 0.01,
        "train.epochs": 20,
        "train.later_epochs": 10,
        "train.batch_size": 48,
        "method.scale": 20,
        "method.margin": 0,
        "method.drift": 4,
        "method.spread": 1e-3,
        "method.paired": True,
    },
    "ssiat stream=imagenet-a": {"method.margin": 0.3},
    "loranpac stream=cifar100": {
        "train.lr": 0.01,
        "train.epochs": 20,
        "train.batch_size": 48,
        "train.weight_decay": 5e-4,
        "method.scale": 1,
        "method.size": 100_000,
        "method.rank": 10_000,
        "method.cut": 0.25,
        "method.pet.bottleneck": 64,
    },
    "loranpac stream=imagenet-a": {"method.cut": 0.2, "method.rank": 10_000},
    "loranpac stream=imagenet-a pet=none": {"method.cut": 0.25},
    "loranpac stream=omnibenchmark": {"method.cut": 0.25, "method.rank": 20_000},
    "layup stream=cifar100": {
        "train.optimiser": "adamw",
        "train.lr": 0.003,
        "train.epochs": 20,
        "train.batch_size": 48,
        "train.weight_decay": 5e-4,
        "method.scale": 30,
        "method.ridge.layers": 6,
        "method.ridge.project": False,
    },
    "layup pet=vpt_deep": {"method.pet.tokens": 10, "method.pet.rate": 1},
    "rsiat stream=cifar100": {
        "train.lr": 0.01,
        "train.later_lr": 0.01846,
        "train.epochs": 10,
        "train.later_epochs": 30,
        "train.batch_size": 64,
        "train.weight_decay": 1.714e-4,
        "method.scale": 40,
        "method.margin": 0.1,
        "method.align_epochs": 10,
        "method.align_samples": 256,
        "method.align_lr": 0.01846,
        "method.spread": 1e-3,
        "method.pairs": 0.2,
        "method.pairs_far": 0.5,
        "method.pairs_margin": 0.3,
        "method.pairs_warmup": 7,
        "method.residual": 1,
        "method.apart": 0.4,
        "method.map_width": 256,
        "method.map_lr": 5.6e-4,
        "method.map_weight_decay": 2.9e-3,
        "method.pet.bottleneck": 64,
        "method.scaled": True,
    },
    "rsiat stream=imagenet-a": {
        "train.lr": 0.01,
        "train.later_lr": 0.00669,
        "method.align_lr": 0.00669,
        "train.later_epochs": 15,
        "train.batch_size": 48,
        "method.margin": 0.3,
        "method.pairs_margin": 1.5,
        "method.apart": 6,
    },
    "mos stream=cifar100": {
        "train.lr": 0.03,
        "train.epochs": 20,
        "train.batch_size": 48,
        "train.weight_decay": 5e-4,
        "method.pull": 0.1,
        "method.align_epochs": 30,
        "method.align_lr": 0.005,
        "method.align_samples": 5 * 48,
        "method.scaled": False,
        "method.pet.bottleneck": 16,
        "method.contrast": 0.1,
        "method.head_rate": 0.1,
        "method.diagonal": False,
    },
    **{
        f"mos stream={stream}": {
            "train.lr": lr,
            "train.batch_size": batch,
            "train.weight_decay": decay,
            "train.epochs": epochs,
            "method.align_samples": 5 * batch,
            "method.diagonal": stream == "imagenet-a",
        }
        for stream, lr, batch, decay, epochs in (
            ("cub", 0.01, 32, 5e-4, 10),
            ("imagenet-r", 0.05, 16, 5e-3, 10),
            ("imagenet-a", 0.05, 32, 5e-3, 10),
            ("omnibenchmark", 0.01, 16, 5e-4, 10),
            ("vtab", 0.03, 32, 5e-3, 20),
        )
    },
    "tuna stream=cifar100": {
        "train.lr": 0.01,
        "train.epochs": 15,
        "train.batch_size": 16,
        "train.weight_decay": 5e-4,
        "method.margin": 0,
        "method.align_epochs": 30,
        "method.align_lr": 0.005,
        "method.align_samples": 80,
        "method.scaled": False,
        "method.pet.bottleneck": 16,
        "method.scale": 20,
        "method.universal": "fused",
    },
    "tuna stream=imagenet-r": {
        "train.lr": 0.02,
        "train.epochs": 10,
        "train.batch_size": 32,
        "method.align_samples": 160,
        "method.scaled": True,
    },
    "tuna stream=imagenet-a": {
        "train.lr": 0.01,
        "train.epochs": 20,
        "train.batch_size": 16,
        "method.align_samples": 80,
        "method.margin": 0.3,
        "method.align_epochs": 10,
        "method.align_lr": 0.01,
        "method.scaled": True,
    },
    "slca stream=cifar100": {
        "train.epochs": 20,
        "train.milestones": [18],
        "method.temperature": 0.1,
    },
    "slca stream=cars": {"train.epochs": 50, "train.milestones": [40], "method.temperature": 0.05},
    "lae stream=cifar100": {
        **ADAM,
        "train.lr": 0.0028125,
        "train.epochs": 5,
        "train.batch_size": 24,
        "method.pet.bottleneck": 5,
        "method.pet.activation": "gelu",
        "method.pet.place": "attention",
        "method.decay": 0.9999,
        "method.frozen": 0.6,
    },
    "lae stream=imagenet-r pet=lora": {
        "train.lr": 4.6875e-4,
        "train.epochs": 50,
        "method.pet.rank": 5,
        "method.pet.alpha": 5,
        "method.pet.projections": "kv",
        "method.pet.blocks": 5,
        "method.pet.learn_scale": True,
    },
    "lae pet=prefix": {
        "method.pet.length": 10,
        "method.pet.compensate": True,
        "method.pet.blocks": 5,
    },
    "aper stream=imagenet-r": {
        "train.lr": 0.05,
        "train.batch_size": 24,
        "train.weight_decay": 5e-3,
    },
    "aper pet=full": {"train.epochs": 5, "train.batch_size": 128},
    "joint-linear": {"train.epochs": 30, "train.batch_size": 128, "train.schedule": "constant"},
    "joint-linear seed=1": {"method.pet.kind": "none", "method.scale": 1},
    "joint-full": {
        "train.lr": 0.01,
        "method.body_rate": 0.01,
        "method.pet.kind": "full",
        "method.scale": 1,
    },
    "finetune-full": {
        "train.lr": 1e-3,
        "train.epochs": 20,
        "train.batch_size": 128,
        "train.later_weight_decay": 2e-4,
        "method.softmax": "local",
        "method.head": "linear",
    },
    "ranpac-no-projection": {"method.ridge.project": False},
    "ranpac-no-pet": {"method.pet.kind": "none"},
}


# What was published was trained in float32 without a guard, on pixels in [0, 1] or with ImageNet's
# mean and deviation.
PIXELS = {
    "simplecil": "none",
    "l2p": "none",
    "dualprompt": "none",
    "coda": "none",
    "siprompts": "imagenet",
    "aper": "none",
    "ease": "none",
    "slca": "imagenet",
    "ssiat": "none",
    "mos": "none",
    "tuna": "none",
    "rsiat": "none",
    "lae": "none",
    "loranpac": "none",
    "layup": "none",
    "joint": "none",
    "joint-linear": "none",
    "joint-full": "none",
    "finetune-full": "none",
    "paper": "none",
    "published": "none",
    "ranpac-published": "none",
}
OURS = {"safe", "demo", "ranpac", "ranpac-no-pet", "ranpac-no-projection", "finetune"}


def test_the_presets_of_papers_have_their_precision_and_pixels_and_no_guard() -> None:
    assert PIXELS.keys() == set(presets()) - OURS
    for name, pixels in PIXELS.items():
        for backbone in ("augreg_in21k_ft_in1k", "augreg_in21k"):
            settings = load(name, [f"backbone=vit_base_patch16_224.{backbone}"])
            assert (settings.precision, settings.backbone.normalisation) == ("fp32", pixels), name
            assert not settings.train.guard or not settings.method.trains


def test_other_weights_have_pixels_as_they_were_trained_with() -> None:
    methods = PIXELS.keys() - {"paper", "published", "ranpac-published"}
    assert {load(name).backbone.normalisation for name in methods} == {"auto"}


@pytest.mark.parametrize("words", VALUES)
def test_a_preset_has_the_values_of_its_paper(words: str) -> None:
    preset, *given = words.split()
    found = flatten(load(preset, given).model_dump(mode="json"))
    assert {key: found[key] for key in VALUES[words]} == VALUES[words]


def test_every_method_has_a_preset_of_its_name() -> None:
    assert method_settings().keys() <= set(presets())
    assert all(load(name).method.name == name for name in method_settings())
