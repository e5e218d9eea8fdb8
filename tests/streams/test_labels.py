"""Names that a person cannot read, or would read as another, are refused."""

import pytest

from safecl.errors import SafeclError
from safecl.streams.labels import check_name, label_problems


@pytest.mark.parametrize("what", ["class", "session"])
@pytest.mark.parametrize(
    "name", ["a\nb", "\x1b[2J", "a\u202eb", "a\u200bb", "c\u200dat", "\ufeffa", "a\udce9", "\u2800"]
)
def test_a_name_with_what_nobody_sees_is_refused_by_an_escape(name: str, what: str) -> None:
    with pytest.raises(
        SafeclError, match=f"The {what} name '.*\\\\.*' holds a control, bidirectional or zero-width"
    ) as caught:
        check_name(name, what)
    assert str(caught.value).isprintable()
    (said,) = label_problems([name], "data")
    assert said.isprintable()


@pytest.mark.parametrize("what", ["class", "session"])
@pytest.mark.parametrize("name", ["", " ", "\u00a0\u3000", "\t"])
def test_a_name_of_spaces_is_none(name: str, what: str) -> None:
    with pytest.raises(SafeclError, match=f"A {what} needs a name"):
        check_name(name, what)


@pytest.mark.parametrize("name", ["می\u200cخواهم", "👩\u200d👧", "=SUM(1)", "[red]", 7, "'quoted'"])
def test_any_alphabet_and_any_sign_will_do(name: str | int) -> None:
    check_name(name)
    assert not list(label_problems([name], "data"))


def test_names_that_differ_in_joiners_only_are_one() -> None:
    (said,) = label_problems(["می\u200cخواهم", "میخواهم"], "data")
    assert "differ only in spelling" in said


def test_a_slash_is_part_of_the_name_of_a_session_alone() -> None:
    check_name("may/june", "session")
    with pytest.raises(SafeclError, match="holds a slash"):
        check_name("may/june")
