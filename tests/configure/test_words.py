"""Words of a user become nested values."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from safecl.configure.words import nested, parse_words
from tests.conftest import raises


def test_a_group_may_stand_before_or_after_what_is_inside_it() -> None:
    wanted = {"pet": {"kind": "adapter", "bottleneck": 4}}
    assert parse_words(["pet=adapter", "pet.bottleneck=4"]) == wanted
    assert parse_words(["pet.bottleneck=4", "pet=adapter"]) == wanted
    assert nested({"method.ridge.size": 60, "method": "safe"}) == {
        "method": {"name": "safe", "ridge": {"size": 60}}
    }


@pytest.mark.parametrize(
    ("word", "refused"),
    [
        ("train.lr", partial(raises, "setting.word.form")),
        ("seed=", partial(raises, "setting.word.no-value")),
        ("pet=", partial(raises, "setting.word.no-value", hint=re.compile("for example pet=ssf"))),
        ("a=[1", partial(raises, "setting.word.unreadable")),
    ],
)
def test_a_word_that_cannot_be_read_is_one_sentence(word: str, refused: Callable[[], Any]) -> None:
    with refused():
        parse_words([word])


def test_a_number_has_no_settings_inside_it() -> None:
    with raises("setting.nothing-inside", key="seed.inner", group="seed"):
        parse_words(["seed=1", "seed.inner=2"])
