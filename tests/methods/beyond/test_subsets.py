"""Each decision beyond the paper can be switched off alone; what it needs of others is refused."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
import torch

from safecl.experiments.config import load
from safecl.methods.catalog import make_method, method_settings
from safecl.methods.method import all_logits, restore
from safecl.streams.stream import Stream
from tests.conftest import raises

SWITCHES = ("pilots", "limit", "average", "release", "untuned")
SESSIONS = [["a", "b", "c", "d"], ["e", "f"]]
ANSWERS = {
    "following by errors": {"statistics": "following", "aggregation": "errors", "likeness": True},
    "following by entropy": {"aggregation": "entropy", "likeness": False},
    "stale by entropy": {"statistics": "stale", "aggregation": "entropy"},
}


def subsets() -> Iterator[Any]:
    """Every subset of the switches; with answers as in the paper, a few."""
    for answer in ANSWERS:
        for on in product((False, True), repeat=len(SWITCHES)):
            if answer == "following by errors" or sum(on) in (0, 1, 4):
                chosen = tuple(name for name, wanted in zip(SWITCHES, on, strict=True) if wanted)
                yield pytest.param(answer, chosen, id=f"{answer}: {' '.join(chosen) or 'none'}")


def fits(answer: str, on: tuple[str, ...]) -> bool:
    """The untuned expert needs pilots, which ask for it, and statistics that follow."""
    return "untuned" not in on or ("pilots" in on and answer.startswith("following"))


@pytest.mark.parametrize(("answer", "on"), subsets())
def test_every_subset_that_fits_together_learns_and_answers(
    answer: str,
    on: tuple[str, ...],
    backbone: Any,
    make_stream: Callable[..., Stream],
    images: torch.Tensor,
    tools: Any,
) -> None:
    words = [f"method.{name}.use={str(name in on).lower()}" for name in SWITCHES]
    words += [f"method.answer.{key}={str(value).lower()}" for key, value in ANSWERS[answer].items()]
    if not fits(answer, on):
        with raises("setting.idle", key="method.untuned.use") as found:
            load("safe", words)
        assert str(found.value).count(". ") == 0
        return
    settings = load("safe", words).method
    wanted = {f"beyond.{name}" for name in on}
    assert {name for name in settings.floors if name.split(".")[-1] in SWITCHES} == wanted
    tiny = {"ridge": tools.ridge, "pet": {"kind": "ssf"}, "scale": settings.scale}
    groups = {key: getattr(settings, key) for key in (*SWITCHES, "answer")}
    kind = method_settings()["safe"]
    method = make_method(kind(**tiny, **groups), backbone)
    tools.teach(method, make_stream(SESSIONS))
    found = all_logits(method, images)
    assert all(z.isfinite().all() and z.shape == (len(images), 6) for z in found.values())
    twin = make_method(kind(**tiny, **groups), backbone)
    restore(twin, tools.snapshot(method), method.classes)
    assert torch.equal(twin.logits(images), method.logits(images))
