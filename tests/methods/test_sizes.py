"""What the methods train and keep on ViT-B/16 is what their papers say."""

from typing import Any

import numpy as np
import pytest
import timm
import torch
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.engine.facts import footprint
from safecl.experiments.config import load
from safecl.heads.cosine import CosineHead
from safecl.heads.linear import LinearHead
from safecl.heads.reading import PLAIN
from safecl.heads.settings import RidgeSettings
from safecl.learner import Reader
from safecl.methods.catalog import make_method
from safecl.methods.method import Method, Network, Recipe, register_classes
from safecl.methods.settings.base import MethodSettings
from safecl.randomness import generator
from safecl.streams.pictures.images import ArrayPictures, Transform
from safecl.streams.stream import Session

ADAPTER = 1_189_632
SSF = 205_824
VPT = 46_080
FULL = 85_798_656
LEARNABLE = {  # preset and words → numbers after ten sessions, heads aside
    "simplecil": 0,
    "l2p": 46_080,
    "dualprompt": 253_440,
    "dualprompt stream=imagenet-r": 15_360 + 921_600 + 7_680,
    "coda": 3_840_000,
    "siprompts": 10 * 7_680,
    "aper": ADAPTER,
    "aper pet=ssf": SSF,
    "aper pet=vpt_deep": VPT,
    "aper pet=vpt_shallow": 3_840,
    "aper pet=full": FULL,
    "ease": 10 * ADAPTER,
    "ease stream=omnibenchmark": ADAPTER,
    "ease stream=vtab": 10 * 304_320,
    "ssiat": ADAPTER,
    "tuna": 10 * 304_320,
    "mos": 10 * 304_320,
    "loranpac": ADAPTER,
    "layup": ADAPTER,
    "rsiat": ADAPTER + 132_224,
    "rsiat stream=imagenet-a": ADAPTER + 115_712,
    "slca": FULL,
    "lae": 42_270,
    "lae pet=lora": 76_810,
    "lae pet=prefix": 76_810,
    "ranpac": SSF,
    "ranpac-no-pet": 0,
    "safe": 2 * SSF,
    "safe pet=adapter": 2 * ADAPTER,
    "safe pet=vpt_deep": 2 * VPT,
    "finetune-full": FULL,
    "joint": SSF,
    "joint-linear": 0,
    "joint-full": FULL,
}
D = 768
C = 20
T = 10  # features, classes and sessions
HEAD = 769 * C
GAUSSIAN = D * (D + 1) // 2
KEPT = {  # numbers of four bytes, besides the tuned ones
    "simplecil": (2 * D + 1) * C,
    "l2p": HEAD,
    "dualprompt": HEAD,
    "coda": HEAD,
    "lae": 42_270 + HEAD,
    "ssiat": C * (D + 2 * D + GAUSSIAN),  # head; mean, its rounding, covariance
    "slca": 2 * HEAD + C * (2 * D + GAUSSIAN),
    "tuna": 304_320 + C * (D + 2 * D + GAUSSIAN),
    "loranpac": 64 * (30 + 2 * C) + 30,  # vectors, sums and weights; values
    # linear head; moments; class means with their sums; owners
    "mos": (HEAD + C * (2 * D + GAUSSIAN + 2 * D + 3)),
    "ease": T * C * (D + 1),
    "aper": C * (4 * D + 1),
}


@pytest.fixture(scope="module")
def vit_b16() -> Backbone:
    """ViT-B/16 with memory that holds no weights: pages that nobody writes cost nothing."""
    try:
        with torch.device("meta"):
            vit = timm.create_model(
                "vit_base_patch16_224.augreg_in21k", pretrained=False, num_classes=0
            )
        vit = vit.to_empty(device="cpu")
    except RuntimeError:
        vit = timm.create_model(
            "vit_base_patch16_224.augreg_in21k", pretrained=False, num_classes=0
        )
    return Backbone(vit, "vit_b16", 224, (0.0,) * 3, (1.0,) * 3)


class DryFit:
    """A ``Fit`` that trains nothing, notes what would be trained, and gives random features."""

    def __init__(self, method: Method) -> None:
        self.method = method
        self.width = method.backbone.width
        self.random = generator(0, "sizes")
        self.trained: dict[int, nn.Parameter] = {}
        self.transform = Transform()

    def __call__(self, name: str, module: nn.Module, *_: Any, **__: Any) -> None:
        heads = [each for each in module.modules() if isinstance(each, CosineHead | LinearHead)]
        aside = {id(parameter) for head in heads for parameter in head.parameters()}
        kept = {id(parameter) for parameter in self.method.parameters()} - aside  # a pilot is not
        self.trained |= {
            id(one): one for one in module.parameters() if one.requires_grad and id(one) in kept
        }

    def recipe(self) -> Recipe:
        return Recipe()

    def agree(self, decision: bool) -> bool:
        return decision

    def record(self, name: str, features: Tensor, targets: Tensor) -> Tensor:
        return features

    def augmented_features(self, name: str, session: Session, network: Network) -> Tensor:
        return self.features(session, network)[1]

    def features(self, session: Session, *networks: Network) -> tuple[Tensor, ...]:
        targets = torch.tensor(session.train.labels)  # a label is its own index here
        read = [network.reading if isinstance(network, Reader) else PLAIN for network in networks]
        widths = [each.views * each.blocks * self.width for each in read]
        return targets, *(
            torch.randn(len(targets), width, generator=self.random) for width in widths
        )


def measure(
    settings: MethodSettings, backbone: Backbone, sessions: int, classes: int
) -> tuple[int, int]:
    """Numbers that any session trains, heads aside, and bytes kept after so many sessions of so
    many new classes.
    """
    fit = DryFit(method := make_method(settings, backbone))
    for number in range(1, sessions + 1):
        labels = tuple(range((number - 1) * classes, number * classes))
        pictures = ArrayPictures(
            np.zeros((2 * len(labels), 1, 1, 3), dtype=np.uint8), [*labels] * 2
        )
        register_classes(method, labels)
        method.learn(Session(number, str(number), labels, pictures), fit)
        method.sessions += 1
    return (
        sum(parameter.numel() for parameter in fit.trained.values()),
        footprint(method)["bytes_kept"],
    )


# A preset as it is, and with other PETs and streams, which is slow where another preset has shown
# the same PET.
AGAIN = (
    "aper pet=ssf",
    "aper pet=vpt_deep",
    "aper pet=full",
    "safe pet=adapter",
    "joint",
    "joint-full",
    "ssiat",
)


@pytest.mark.parametrize(
    "words",
    [pytest.param(words, marks=pytest.mark.slow if words in AGAIN else ()) for words in LEARNABLE],
)
def test_learnable_numbers_on_vit_b16_are_those_of_the_papers(
    words: str, vit_b16: Backbone
) -> None:
    preset, *given = words.split()
    settings = load(preset, given).method
    if hasattr(settings, "ridge"):
        settings = settings.model_copy(update={"ridge": RidgeSettings(size=8)})
    if preset == "loranpac":
        settings = settings.model_copy(update={"size": 64})
    sessions = 2 if preset == "safe" else T  # it trains the same two learners in every session
    learnable, kept = measure(settings, vit_b16, sessions, C // T)
    assert learnable == LEARNABLE[words]
    if words in KEPT:
        # counters, scales, class indices
        assert kept - 4 * (LEARNABLE[words] + KEPT[words]) < 2_000
