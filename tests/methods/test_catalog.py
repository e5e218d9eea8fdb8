"""A method that lacks something is refused with a sentence for whoever writes it."""

from typing import Any, ClassVar, Literal

import pytest
from pydantic import Field

from safecl.backbone.backbone import Backbone
from safecl.errors import SafeclError
from safecl.methods.catalog import check
from safecl.methods.settings.base import MethodSettings


class _Complete(MethodSettings):
    title: ClassVar[str] = "Mine"
    paper: ClassVar[str] = "Someone, 2024"
    kind: ClassVar[Any] = "continual"

    name: Literal["test_catalog"] = "test_catalog"


class _Untitled(_Complete):
    title: ClassVar[str] = ""


class _OfNoKind(_Complete):
    kind: ClassVar[Any] = "gaussian"


class _Renamed(_Complete):
    name: Literal["other"] = "other"  # type: ignore[assignment]


class _Demanding(_Complete):
    rank: int = Field(description="needed")


def test_a_complete_one_is_taken() -> None:
    check(_Complete)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (_Untitled, "must say its title"),
        (_OfNoKind, "'gaussian' must be one of: no training"),
        (_Renamed, "must be 'test_catalog', as its file is called"),
        (_Demanding, "_Demanding.rank needs a default"),
    ],
)
def test_what_is_missing_is_said(settings: type[MethodSettings], told: str) -> None:
    with pytest.raises(TypeError, match=told):
        check(settings)


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
    with pytest.raises(SafeclError, match=r"would have more than 1,073,741,824 numbers of its own; lower its sizes\.$"):
        tools.teach(tools.new_method(backbone, {**settings, **given}), make_stream([["a", "b"]]))
