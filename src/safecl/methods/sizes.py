"""How many numbers a method trains on a backbone, and how many bytes it keeps, without any training."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.heads.cosine import CosineHead
from safecl.heads.linear import LinearHead
from safecl.heads.reading import PLAIN
from safecl.methods.catalog import make_method
from safecl.methods.method import Method, Network, Recipe
from safecl.methods.settings.base import MethodSettings
from safecl.methods.settings.loranpac import LoranpacSettings
from safecl.randomness import generator
from safecl.streams.pictures.images import ArrayPictures
from safecl.streams.stream import Session

PICTURES = 2  # of a class: enough for every statistic, and no state depends on their number
RIDGE_SIZES = (8, 16, 24)


class Sizes(NamedTuple):
    """``learnable``: numbers that any session trains, heads aside. ``kept``: bytes of the state after the last one."""

    learnable: int
    kept: int


def measure(settings: MethodSettings, backbone: Backbone, sessions: int = 10, classes: int = 10) -> Sizes:
    """The sizes after so many sessions of so many new classes each.

    The state of a ridge head is a polynomial of second degree in ridge.size: it is measured at three small sizes.
    """
    if isinstance(settings, LoranpacSettings):  # with as many vectors as there may be
        both = settings.model_copy(update={"size": RIDGE_SIZES[0]}), settings
        ranks = [min(s.rank, round((1 - s.cut) * s.size)) for s in both]
        few, most = (s.size * (k + 2 * sessions * classes) + k for s, k in zip(both, ranks, strict=True))
        found = [_measure(both[0], backbone, sessions, classes)]
        return Sizes(found[0].learnable, found[0].kept + 4 * (most - few))
    ridge: Any = getattr(settings, "ridge", None)
    if ridge is None or ridge.size in RIDGE_SIZES:
        return _measure(settings, backbone, sessions, classes)
    plain = {key: value for key, value in PLAIN._asdict().items() if getattr(ridge, key) == "auto"}
    small = [
        settings.model_copy(update={"ridge": ridge.model_copy(update={**plain, "size": size})}) for size in RIDGE_SIZES
    ]
    found = [_measure(each, backbone, sessions, classes) for each in small]
    kept = np.polynomial.Polynomial.fit(RIDGE_SIZES, [each.kept for each in found], deg=2)(ridge.size)
    return Sizes(found[0].learnable, round(kept))


def _measure(settings: MethodSettings, backbone: Backbone, sessions: int, classes: int) -> Sizes:
    fit = _DryFit(method := make_method(settings, backbone))
    for number in range(1, sessions + 1):
        labels = tuple(range((number - 1) * classes, number * classes))
        pictures = ArrayPictures(np.zeros((len(labels) * PICTURES, 1, 1, 3), dtype=np.uint8), [*labels] * PICTURES)
        method.register_classes(labels)
        method.learn(Session(number, str(number), labels, pictures), fit)
        method.sessions += 1
    return Sizes(sum(parameter.numel() for parameter in fit.trained.values()), method.facts()["bytes_kept"])


class _DryFit:
    """A ``Fit`` that trains nothing, notes what would be trained, and gives random features."""

    def __init__(self, method: Method) -> None:
        self.method, self.width, self.random = method, method.backbone.width, generator(0, "sizes")
        self.trained: dict[int, nn.Parameter] = {}

    def __call__(self, name: str, module: nn.Module, *_: Any, **__: Any) -> None:
        heads = [each for each in module.modules() if isinstance(each, CosineHead | LinearHead)]
        aside = {id(parameter) for head in heads for parameter in head.parameters()}
        kept = {id(parameter) for parameter in self.method.parameters()} - aside  # a pilot is not
        self.trained |= {id(one): one for one in module.parameters() if one.requires_grad and id(one) in kept}

    def recipe(self) -> Recipe:
        return Recipe()

    def agree(self, decision: bool) -> bool:
        return decision

    def augmented_features(self, name: str, session: Session, network: Network) -> Tensor:
        return self.features(session, network)[1]

    def features(self, session: Session, *networks: Network) -> tuple[Tensor, ...]:
        targets = torch.tensor(session.train.labels)  # a label is its own index here
        widths = [getattr(network, "width", self.width) for network in networks]
        return targets, *(torch.randn(len(targets), width, generator=self.random) for width in widths)
