"""A learning rate that is made to destroy: no method ends worse than the backbone that nobody tuned."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from safecl.backbone.backbone import Backbone
from safecl.engine.settings import TrainSettings
from safecl.heads.ridge import RidgeHead
from safecl.heads.settings import RidgeSettings
from safecl.methods.method import Method
from safecl.streams.stream import Stream

MakeStream = Callable[..., Stream]
SESSIONS = [["a", "b", "c"], ["d", "e"]]
# At this rate an adapter outweighs its block: of a picture no more is left than passes through its bottleneck. With SSF
# it would be a matter of luck, for a network of random gains and shifts can tell these pictures apart as well.
DESTROYS = TrainSettings(guard=True, epochs=4, batch_size=6, lr=1e4, later_clip=None)


def plain(stream: Stream, number: int, part: str, classes: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    pictures = getattr(stream._parts[number], part)
    images = pictures.plain(range(len(pictures)), stream.transform).float() / 255
    return images, torch.tensor([classes.index(label) for label in pictures.labels])


def accuracy(method: Method, stream: Stream) -> float:
    tests = [plain(stream, i, "test", method.classes) for i in range(len(SESSIONS))]
    right = [method.logits(x).argmax(dim=1) == y for x, y in tests]
    return float(torch.cat(right).float().mean())


def untuned(backbone: Backbone, stream: Stream) -> float:
    classes = [label for session in SESSIONS for label in session]
    head = RidgeHead(backbone.width, RidgeSettings(size=40))
    with torch.no_grad():
        for i in range(len(SESSIONS)):
            x, y = plain(stream, i, "train", classes)
            head.add(backbone.features(x), y)
        head.solve()
        tests = [plain(stream, i, "test", classes) for i in range(len(SESSIONS))]
        right = [head.logits(backbone.features(x)).argmax(dim=1) == y for x, y in tests]
    return float(torch.cat(right).float().mean())


def taught(
    name: str, train: TrainSettings, backbone: Backbone, stream: Stream, tools: Any
) -> tuple[Method, list[set[str]]]:
    """A method that has learned the stream, and in each session the rates that the guard has changed."""
    method: Method = tools.new_method(backbone, {"name": name}, "adapter")
    fit, changed = tools.new_fit(method, stream, train), []
    for number in range(1, len(SESSIONS) + 1):
        tools.teach(method, stream, number, number, fit)
        changed.append({key for key in method.notes if key.startswith("rate of ")})
    return method, changed


@pytest.mark.parametrize("name", ["safe", "ranpac", "aper", "ease"])
def test_a_rate_that_destroys_ends_no_worse_than_no_tuning(
    name: str, backbone: Backbone, make_stream: MakeStream, tools: Any
) -> None:
    stream = make_stream(SESSIONS, train=8, test=8)
    method, (first, later) = taught(name, DESTROYS, backbone, stream, tools)
    assert first and (name in ("safe", "ease") or not later)  # the others tune in the first session alone
    assert accuracy(method, stream) >= untuned(backbone, stream) - 1e-6


@pytest.mark.parametrize("name", ["safe", "ranpac"])
def test_without_the_guard_it_would_have(name: str, backbone: Backbone, make_stream: MakeStream, tools: Any) -> None:
    stream = make_stream(SESSIONS, train=8, test=8)
    method, _ = taught(name, DESTROYS.model_copy(update={"guard": False}), backbone, stream, tools)
    assert accuracy(method, stream) < untuned(backbone, stream)
