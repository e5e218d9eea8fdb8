"""Names that a person cannot read, or would read as another, are refused."""

import re

import pytest

from safecl.streams.labels import alike, check_name, label_problems, meant
from tests.conftest import raises


@pytest.mark.parametrize("what", ["class", "session"])
@pytest.mark.parametrize(
    "name", ["a\nb", "\x1b[2J", "a\u202eb", "a\u200bb", "c\u200dat", "\ufeffa", "a\udce9", "\u2800"]
)
def test_a_name_with_what_nobody_sees_is_refused_by_an_escape(name: str, what: str) -> None:
    with raises("name.hidden", what=what) as caught:
        check_name(name, what)
    assert str(caught.value).isprintable()
    (error,) = label_problems([name], "data")
    assert str(error).isprintable()


@pytest.mark.parametrize("what", ["class", "session"])
@pytest.mark.parametrize("name", ["", " ", "\u00a0\u3000", "\t"])
def test_a_name_of_spaces_is_none(name: str, what: str) -> None:
    with raises("name.empty", what=what):
        check_name(name, what)


@pytest.mark.parametrize("name", ["می\u200cخواهم", "👩\u200d👧", "=SUM(1)", "[red]", 7, "'quoted'"])
def test_any_alphabet_and_any_sign_will_do(name: str | int) -> None:
    check_name(name)
    assert not list(label_problems([name], "data"))


def test_names_that_differ_in_joiners_only_are_one() -> None:
    (error,) = label_problems(["می\u200cخواهم", "میخواهم"], "data")
    assert error.code == "name.alike" and error.fields["why"] == "differ only in spelling"


LOOK_ALIKES = {
    "Pug": "Рug",
    "cop": "сор",
    "HOT": "НОТ",
    "Oak": "Οak",
    "van": "νan",
    "exam 7": "ехаm 7",
}


@pytest.mark.parametrize(
    ("name", "other"), [*LOOK_ALIKES.items(), *((b, a) for a, b in LOOK_ALIKES.items())]
)
def test_letters_of_another_alphabet_that_look_alike_make_no_other_name(
    name: str, other: str
) -> None:
    (error,) = label_problems([name, other], "data")
    assert (error.code, error.fields["name"]) == ("name.alike", "data")
    assert re.match(r"look the same, but one has a (Cyrillic|Greek) ", error.fields["why"])
    (error,) = label_problems([other], "data", known=[name])
    assert (error.code, error.fields["one"]) == ("name.like-known", name)
    assert meant(other, ["x", name]) == name and meant(name, ["x", name, other]) == name
    assert list(alike([name, other], alphabets=False)) == []


@pytest.mark.parametrize(
    "names",
    [
        ["ваза", "BA3A"],
        ["α", "a"],
        ["1", "l", "I"],
        ["кот", "kot"],
        ["pug", "pugs"],
        [0, "O"],
        [-1, 1],
    ],
)
def test_names_that_a_person_tells_apart_are_two(names: list[str | int]) -> None:
    assert list(label_problems(names, "data")) == []


def test_a_word_and_its_capitals_are_one_name_in_any_alphabet() -> None:
    for one, other in (
        ("ваза", "ВАЗА"),
        ("νέφος", "ΝΈΦΟΣ"),
        ("straße", "STRASSE"),
        (1, "1"),
        ("a-b", "A_b"),
    ):
        (error,) = label_problems([one, other], "data")
        assert str(error) == (
            f"The classes {one!r} and {other!r} of data differ only in spelling; use one name"
            " for both."
        )
    assert meant("none", []) is None and meant(0, [1, 0]) == 0


def test_a_slash_is_part_of_the_name_of_a_session_alone() -> None:
    check_name("may/june", "session")
    with raises("name.slash", label="may/june"):
        check_name("may/june")
