"""A learning rate that is made to destroy: no method ends worse than the backbone that nobody tuned."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from safecl.backbone.backbone import Backbone
from safecl.engine.settings import TrainSettings
from safecl.errors import SafeclError
from safecl.heads.ridge import RidgeHead
from safecl.heads.settings import RidgeSettings
from safecl.methods.method import Method
from safecl.streams.stream import Stream

MakeStream = Callable[..., Stream]
SESSIONS = [["a", "b", "c"], ["d", "e"]]
DESTROYS = TrainSettings(guard=True, epochs=4, batch_size=6, lr=1e3, later_clip=None)


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


def taught(name: str, train: TrainSettings, backbone: Backbone, stream: Stream, tools: Any) -> Method:
    method: Method = tools.new_method(backbone, {"name": name}, "ssf")
    tools.teach(method, stream, fit=tools.new_fit(method, stream, train))
    return method


@pytest.mark.parametrize("name", ["safe", "ranpac", "aper", "ease"])
def test_a_rate_that_destroys_ends_no_worse_than_no_tuning(
    name: str, backbone: Backbone, make_stream: MakeStream, tools: Any
) -> None:
    stream = make_stream(SESSIONS, train=8, test=8)
    method = taught(name, DESTROYS, backbone, stream, tools)
    tunes_later = name in ("safe", "ease")
    assert any(key.startswith("rate of ") for key in method.notes) is tunes_later  # notes are of the last session
    assert accuracy(method, stream) >= untuned(backbone, stream) - 1e-6


@pytest.mark.parametrize("name", ["safe", "ranpac"])
def test_without_the_guard_it_would_have(name: str, backbone: Backbone, make_stream: MakeStream, tools: Any) -> None:
    stream = make_stream(SESSIONS, train=8, test=8)
    try:
        method = taught(name, DESTROYS.model_copy(update={"guard": False}), backbone, stream, tools)
    except SafeclError:  # the loss is not finite at any rate
        return
    assert accuracy(method, stream) < untuned(backbone, stream)
