"""Numbers and lists as a person reads them."""

import pytest

from safecl.report import words


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (words.percent, 0.7821, "78.2 %"),
        (words.percent, None, "–"),
        (lambda value: words.accuracy(value, 500), 0.782, "78.2 ± 1.8 %"),
        (lambda value: words.accuracy(value, 3), 1.0, "100.0 ± 17.9 %"),
        (lambda value: words.accuracy(value, 0), 0.0, "–"),
        (words.points, -0.0001, "0.0"),
        (words.points, -0.031, "−3.1"),
        (words.count, 1234567, "1,234,567"),
        (words.size, 0, "0 bytes"),
        (words.size, 999, "999 bytes"),
        (words.size, 1000, "1.0 kB"),
        (words.size, 2.5e12, "2.5 TB"),
        (words.duration, 12.34, "12.3 s"),
        (words.duration, 59.7, "1 min 0 s"),
        (words.duration, 3599.6, "1 h 0 min"),
        (words.listed, ["a", "b", "c"], "a, b and c"),
        (words.listed, ["a"], "a"),
        (words.protocol, "mixed", "mixed"),
        (words.protocol, "class", "class-incremental"),
    ],
)
def test_reads_well(function: object, value: object, text: str) -> None:
    assert callable(function)
    assert function(value).replace("\u00a0", " ") == text


def test_plurals() -> None:
    plurals = [words.plural(1, "class"), words.plural(2, "class"), words.plural(0, "session")]
    assert [text.replace(words.NBSP, " ") for text in plurals] == [
        "1 class",
        "2 classes",
        "0 sessions",
    ]


@pytest.mark.parametrize("pictures", [1, 3, 50, 10_000])
def test_the_standard_error_is_that_of_a_share_and_never_nothing(pictures: int) -> None:
    for right in {0, pictures // 2, pictures}:
        share = (right + 1) / (pictures + 2)
        expected = (share * (1 - share) / (pictures + 2)) ** 0.5
        assert (
            words.standard_error(right / pictures, pictures) == pytest.approx(expected)
            and expected > 0
        )
    plain = (0.3 * 0.7 / 10_000) ** 0.5
    assert words.standard_error(0.3, 10_000) == pytest.approx(plain, rel=1e-3)
