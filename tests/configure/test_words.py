"""Words of a user become nested values."""

import pytest

from safecl.configure.words import nested, parse_words
from safecl.errors import SafeclError


def test_a_group_may_stand_before_or_after_what_is_inside_it() -> None:
    wanted = {"pet": {"kind": "adapter", "bottleneck": 4}}
    assert parse_words(["pet=adapter", "pet.bottleneck=4"]) == wanted
    assert parse_words(["pet.bottleneck=4", "pet=adapter"]) == wanted
    assert nested({"method.ridge.size": 60, "method": "safe"}) == {"method": {"name": "safe", "ridge": {"size": 60}}}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("train.lr", "is not of the form key=value"),
        ("seed=", "has no value"),
        ("pet=", "for example pet=ssf"),
        ("a=[1", "cannot be read"),
    ],
)
def test_a_word_that_cannot_be_read_is_one_sentence(word: str, said: str) -> None:
    with pytest.raises(SafeclError, match=said):
        parse_words([word])


def test_a_number_has_no_settings_inside_it() -> None:
    with pytest.raises(SafeclError, match="seed has no settings inside it"):
        parse_words(["seed=1", "seed.inner=2"])
