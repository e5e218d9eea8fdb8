"""Methods of every make on a tiny backbone, and the engine's own training loop to teach them with."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from safecl.backbone import Backbone
from safecl.engine.fit import Fitting, TrainSettings
from safecl.engine.progress import Quiet
from safecl.heads import RidgeSettings
from safecl.methods import METHODS, Method, make_method
from safecl.methods.catalog import SETTINGS
from safecl.methods.method import Loss
from safecl.methods.safe import SAFE
from safecl.pet import pet_settings
from safecl.streams.stream import Session, Stream

TRAIN = TrainSettings(epochs=1, batch_size=4, lr=0.05)
RIDGE = RidgeSettings(size=40)
ONE_BETA = RidgeSettings(size=40, betas=(5.0,), scale="absolute")

# Every method, and SAFE with each of its switches on another side than the default.
VARIANTS: dict[str, dict[str, Any]] = {
    **{name: {"name": name} for name in METHODS},
    **{
        "safe " + " ".join(f"{key}={value}" for key, value in switches.items()): {"name": "safe", **switches}
        for switches in (
            {"teacher": "none"},
            {"teacher": "ptm"},
            {"teacher": "previous"},
            {"teacher": "slow", "lambda_cross": 0.0},
            {"aggregation": "add"},
            {"aggregation": "max"},
            {"aggregation": "concat"},
            {"statistics": "shared"},
            {"new_rows": "zero"},
            {"slow_rows": "keep", "reset_scale": True},
            {"pilot": False, "trust": None},
            {"trust": 1e-9},
            {"release": False, "average": False},
            {"transfer_normalisation": "batch", "transfer_reduction": "mean", "lambda_diag": 1.0, "pilot": False},
            {"transfer": "fa", "transfer_share": None, "pilot": False},
            {"transfer": "la", "pilot": False},
            {"transfer": "ssa", "pilot": False},
            {"transfer": "none"},
            {"cross_pooling": "concat", "cos_reduction": "sum"},
            {"temperature": "learned"},
        )
    },
}


class Watched(Fitting):
    """The engine's training loop; tells what it was asked for."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.calls: list[tuple[int, str]] = []
        self.on_fit: Callable[[str, nn.Module, Session], None] = lambda name, learner, session: None
        self.after_fit: Callable[[str, Any, Session], None] = lambda name, learner, session: None
        self.around: Callable[[Loss], Loss] = lambda loss: loss

    def __call__(self, name: str, learner: nn.Module, session: Session, loss: Loss) -> None:
        self.calls.append((session.number, name))
        self.on_fit(name, learner, session)
        super().__call__(name, learner, session, self.around(loss))
        self.after_fit(name, learner, session)


def new_method(
    backbone: Backbone, settings: dict[str, Any], pet: str = "adapter", seed: int = 0, ridge: RidgeSettings = RIDGE
) -> Method:
    """A method that has learned nothing yet."""
    kind = SETTINGS[settings["name"]](**settings)
    settings = pet_settings(pet, **({"bottleneck": 4} if pet == "adapter" else {}))
    return make_method(kind, backbone, settings, ridge, seed)


def new_fit(method: Method, stream: Stream, train: TrainSettings = TRAIN, seed: int = 0) -> Watched:
    return Watched(Accelerator(cpu=True), method, train, stream.transform, seed, Quiet())


def teach(
    method: Method, stream: Stream, first: int = 1, last: int | None = None, fit: Watched | None = None
) -> Watched:
    """Learn the sessions ``first`` to ``last``, as a run does."""
    fit = fit or new_fit(method, stream)
    for number in range(first, (last or len(stream)) + 1):
        session = stream.open(number)
        method.register_classes(session.classes)
        method.learn(session, fit)
        session.close()
    return fit


def snapshot(method: Method) -> dict[str, Tensor]:
    """The state as it is now, whatever is learned later."""
    return {key: value.detach().clone() for key, value in method.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Equal to the bit."""
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


class Tools:
    """The functions above, where a test can reach them."""

    new_method = staticmethod(new_method)
    new_fit = staticmethod(new_fit)
    teach = staticmethod(teach)
    snapshot = staticmethod(snapshot)
    same = staticmethod(same)


@pytest.fixture(scope="session")
def tools() -> type[Tools]:
    return Tools


@pytest.fixture(scope="session", params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Settings of every method."""
    return VARIANTS[request.param]


# A method is watched on every kind of stream, a switch of SAFE on the two that differ most.
WATCHED = [
    (name, protocol)
    for name in VARIANTS
    for protocol in (("class", "domain", "mixed") if name in METHODS else ("class", "mixed"))
]


@pytest.fixture(scope="session", params=WATCHED, ids=" on ".join)
def watched(request: pytest.FixtureRequest) -> tuple[dict[str, Any], str]:
    """Settings of a method, and the kind of stream to watch it on."""
    name, protocol = request.param
    return VARIANTS[name], protocol


@pytest.fixture(scope="session")
def backbone(make_backbone: Callable[..., Backbone]) -> Backbone:
    return make_backbone(depth=1)


@pytest.fixture
def new(backbone: Backbone, tools: Any) -> Callable[..., SAFE]:
    """``new(ridge=…, pet=…, **switches)``: a SAFE that has learned nothing."""

    def make(ridge: RidgeSettings = ONE_BETA, pet: str = "adapter", **switches: Any) -> SAFE:
        return tools.new_method(backbone, {"name": "safe", **switches}, pet, ridge=ridge)

    return make
