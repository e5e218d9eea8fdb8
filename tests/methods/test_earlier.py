"""What safecl 0.1.0 wrote opens: one number was all switches, and their state had other names."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from safecl.experiments.config import load
from safecl.methods.earlier import RENAMED, settings_of_today
from safecl.methods.method import restore
from safecl.methods.safe import SAFE
from safecl.methods.settings.safe import SafeSettings
from safecl.streams.stream import Stream
from tests.conftest import raises


@pytest.mark.parametrize("pilot", [0, 0.5])
def test_stored_settings_become_switches(pilot: float) -> None:
    stored = SafeSettings().model_dump(mode="json")
    for name in ("pilots", "limit", "average", "release", "untuned"):
        del stored[name]
    del stored["answer"]["likeness"]
    found = SafeSettings.model_validate(settings_of_today({**stored, "pilot": pilot}))
    ours = {name.removeprefix("beyond.") for name in found.floors if name.startswith("beyond.")}
    assert ({"pilots", "limit", "average", "release", "untuned"} <= ours) == bool(pilot)
    assert found.pilots.epochs == (pilot or 0.75)
    assert settings_of_today(found.model_dump()) == found.model_dump()


def test_a_user_who_gives_the_number_is_told_what_to_give() -> None:
    with raises("setting.pilot.earlier"):
        load("safe", ["method.pilot=0.5"])


@pytest.mark.parametrize("beyond", [True, False])
def test_a_stored_state_goes_on(
    beyond: bool,
    new: Callable[..., SAFE],
    make_stream: Callable[..., Stream],
    images: torch.Tensor,
    tools: Any,
) -> None:
    method = new(beyond=beyond)
    sessions = [["a", "b"], ["c", "d"], ["e", "f"]]
    tools.teach(method, make_stream(sessions), last=2)
    names = {today: then for then, today in RENAMED.items()}
    state = {names.get(name, name): tensor for name, tensor in tools.snapshot(method).items()}
    unused = {"w_ptm.weight": torch.zeros(0, 24), "policy.share": torch.ones(())}
    twin = new(beyond=beyond)
    restore(twin, {**unused, **state}, method.classes)
    assert torch.equal(twin.logits(images), method.logits(images))
    for each in (method, twin):
        tools.teach(each, make_stream(sessions), first=3)
    assert tools.same(tools.snapshot(method), tools.snapshot(twin))
