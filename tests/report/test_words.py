"""Numbers and lists as a person reads them."""

import pytest

from safecl.report import words


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (words.percent, 0.7821, "78.2 %"),
        (words.percent, None, "–"),
        (words.points, -0.0001, "0.0"),
        (words.points, -0.031, "−3.1"),
        (words.count, 1234567, "1 234 567"),
        (words.size, 0, "0 B"),
        (words.size, 999, "999 B"),
        (words.size, 1000, "1.0 kB"),
        (words.size, 999_999, "1.0 MB"),
        (words.size, 2.5e12, "2500 GB"),
        (words.duration, 12.34, "12.3 s"),
        (words.duration, 59.7, "1 min 0 s"),
        (words.duration, 3599.6, "1 h 0 min"),
        (words.listed, ["a", "b", "c"], "a, b and c"),
        (words.listed, ["a"], "a"),
    ],
)
def test_reads_well(function: object, value: object, text: str) -> None:
    assert callable(function)
    assert function(value).replace(words.NBSP, " ").replace(words.THIN, " ") == text


def test_plurals() -> None:
    plurals = [words.plural(1, "class"), words.plural(2, "class"), words.plural(0, "session")]
    assert [text.replace(words.NBSP, " ") for text in plurals] == ["1 class", "2 classes", "0 sessions"]
