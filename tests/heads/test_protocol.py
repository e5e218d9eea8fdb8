"""Every module with state says what happens to it when a class is dropped or two models become
one.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from safecl.heads.cosine import CosineHead
from safecl.heads.linear import LinearHead
from safecl.heads.protocol import editable_parts
from safecl.methods.catalog import make_method, method_settings
from safecl.methods.parts import drop_class, merge
from tests.conftest import raises


class Counter(nn.Module):
    """State of which nothing says what becomes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("pictures", torch.zeros(3))
        self.register_buffer("scratch", torch.zeros(1), persistent=False)


@pytest.mark.parametrize("name", [*method_settings(), "safe shared"])
def test_every_method_answers_for_all_of_its_state(
    name: str, make_backbone: Callable[..., Any]
) -> None:
    name, _, kind = name.partition(" ")
    settings = method_settings()[name].model_validate(
        {"answer": {"statistics": kind}} if kind else {}
    )
    method = make_method(settings, make_backbone())
    parts = editable_parts(method)
    known = {*getattr(method, "rows", ()), *getattr(method, "shaped", ())}
    own = [
        key for key in method.state_dict() if key not in known and not key.endswith("_extra_state")
    ]
    assert all(any(key.startswith(f"{part}.") for part in parts if part) for key in own)


def test_state_that_nothing_answers_for_is_refused_and_named(
    make_backbone: Callable[..., Any],
) -> None:
    method = make_method(method_settings()["simplecil"](), make_backbone())
    method.add_module("counter", Counter())
    for change in (
        lambda: drop_class(method, 0),
        lambda: merge(method, method, method, torch.arange(2)),
    ):
        with raises(
            "correct.unknown-part", tensors="counter.pictures", module=re.compile("^Counter")
        ):
            change()
    method = make_method(method_settings()["simplecil"](), make_backbone())
    method.register_buffer("own", torch.zeros(2))
    with raises("correct.unknown-part", tensors="own"):
        drop_class(method, 0)


def test_a_module_answers_for_those_inside_it() -> None:
    head = CosineHead(4)
    head.add_module("inside", Counter())
    assert editable_parts(nn.ModuleDict({"head": head})) == {"head": head}


def test_what_is_only_trained_is_not_merged() -> None:
    with raises("merge.trained-part", part="LinearHead"):
        LinearHead(4).merge(LinearHead(4), LinearHead(4), torch.arange(1))
