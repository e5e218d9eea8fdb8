"""What every method says of itself, and sizes that are refused."""

from typing import Any, get_args

import pytest

from safecl.backbone.backbone import Backbone
from safecl.methods.catalog import method_settings
from safecl.methods.settings.base import Kind, MethodSettings
from tests.conftest import raises


@pytest.mark.parametrize("kind", method_settings().values())
def test_a_method_says_what_it_is_and_can_be_made_without_any_setting(
    kind: type[MethodSettings],
) -> None:
    assert kind.title and kind.paper and kind.kind in get_args(Kind)
    assert kind().name == kind.__module__.rpartition(".")[2]


HUGE = 1 << 16  # as large as each size may be


@pytest.mark.parametrize(
    ("settings", "pet"),
    [
        ({"name": "l2p", "pool": HUGE, "length": HUGE}, "none"),
        ({"name": "coda", "components": HUGE, "length": HUGE}, "none"),
        ({"name": "safe"}, {"kind": "lora", "rank": 1 << 28}),
        ({"name": "ranpac"}, {"kind": "adapter", "bottleneck": 1 << 28}),
        ({"name": "lae"}, {"kind": "prefix", "length": 1 << 28}),
    ],
    ids=lambda given: str(given)[:30],
)
def test_sizes_whose_product_is_huge_are_refused_before_anything_is_made(
    settings: dict[str, Any], pet: Any, backbone: Backbone, make_stream: Any, tools: Any
) -> None:
    given = {} if pet == "none" else {"pet": pet}
    with raises("method.too-large", most="1073741824"):
        tools.teach(tools.new_method(backbone, {**settings, **given}), make_stream([["a", "b"]]))
