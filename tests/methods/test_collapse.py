"""A learning rate that is made to destroy: no method ends worse than with hardly any tuning."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from safecl.backbone.backbone import Backbone
from safecl.engine.retry import Guard
from safecl.engine.settings import TrainSettings
from safecl.methods.method import Method
from safecl.streams.stream import Stream

MakeStream = Callable[..., Stream]
SESSIONS = [["a", "b", "c"], ["d", "e"]]
# At this rate an adapter outweighs its block: of a picture no more is left than passes through its
# bottleneck. With SSF it would be a matter of luck, for a network of random gains and shifts can
# tell these pictures apart as well.
DESTROYS = TrainSettings(epochs=4, batch_size=6, lr=1e6, later_lr=1e-3)
SPARES = DESTROYS.model_copy(update={"lr": 1e-6})


def plain(
    stream: Stream, number: int, part: str, classes: list[Any]
) -> tuple[torch.Tensor, torch.Tensor]:
    pictures = getattr(stream._parts[number], part)
    images = pictures.plain(range(len(pictures)), stream.transform).float() / 255
    return images, torch.tensor([classes.index(label) for label in pictures.labels])


def accuracy(method: Method, stream: Stream) -> float:
    tests = [plain(stream, i, "test", method.classes) for i in range(len(SESSIONS))]
    right = [method.logits(x).argmax(dim=1) == y for x, y in tests]
    return float(torch.cat(right).float().mean())


def taught(
    name: str, train: TrainSettings, backbone: Backbone, stream: Stream, tools: Any
) -> tuple[Method, list[set[str]]]:
    """A method that has learned the stream, and in each session the rates that the guard has
    changed.
    """
    method: Method = tools.new_method(backbone, {"name": name}, "adapter")
    fit = tools.new_fit(method, stream, train)
    changed = []
    for number in range(1, len(SESSIONS) + 1):
        tools.teach(method, stream, number, number, fit)
        changed.append({key for key in method.notes if key.startswith("rate of ")})
    return method, changed


@pytest.mark.parametrize(
    "name",
    ["safe", "ranpac", *(pytest.param(name, marks=pytest.mark.slow) for name in ("aper", "ease"))],
)
def test_a_rate_that_destroys_ends_no_worse_than_hardly_any_tuning(
    name: str, backbone: Backbone, make_stream: MakeStream, tools: Any
) -> None:
    found = []
    for train in (DESTROYS, SPARES):
        stream = make_stream(SESSIONS, train=24, test=16)
        method, (first, later) = taught(name, train, backbone, stream, tools)
        assert bool(first) == (train is DESTROYS) and not later
        found.append(accuracy(method, stream))
    assert found[0] >= found[1] - 1e-6


@pytest.mark.parametrize("name", [pytest.param("safe", marks=pytest.mark.slow), "ranpac"])
def test_without_the_guard_it_would_have(
    name: str, backbone: Backbone, make_stream: MakeStream, tools: Any
) -> None:
    found = []
    for train in (DESTROYS.model_copy(update={"guard": False}), SPARES):
        stream = make_stream(SESSIONS, train=24, test=16)
        found.append(accuracy(taught(name, train, backbone, stream, tools)[0], stream))
    assert found[0] < found[1]


TUNING = [
    "safe",
    "ranpac",
    "aper",
    "ease",
    "l2p",
    "dualprompt",
    "coda",
    "siprompts",
    "ssiat",
    "lae",
    "slca",
    "finetune",
]


@pytest.mark.parametrize("name", TUNING)
def test_every_method_that_tunes_has_the_guard(
    name: str,
    backbone: Backbone,
    make_stream: MakeStream,
    tools: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the features are found worse whatever the rate, what is tuned ends as it was."""
    guards: list[Guard] = []

    def worse(guard: Guard) -> bool:
        guards.append(guard)
        return True

    monkeypatch.setattr(Guard, "worse", worse)
    method = tools.new_method(backbone, {"name": name}, "adapter")
    stream = make_stream(SESSIONS, train=6)
    once = SPARES.model_copy(update={"epochs": 1})
    tools.teach(method, stream, 1, 1, tools.new_fit(method, stream, once))
    assert guards and all(
        value == 0 for key, value in method.notes.items() if key.startswith("rate of ")
    )
    for guard in {id(each): each for each in guards}.values():
        for each, start in zip(guard._judged, guard._start, strict=True):
            assert all(
                torch.equal(value, start[key]) for key, value in each.tuned.state_dict().items()
            )
