"""What is said of a stream before a run on it."""

from collections.abc import Callable

import pytest

from safecl.experiments.launch import announce, cut
from safecl.streams.stream import Stream

MakeStream = Callable[..., Stream]


@pytest.mark.parametrize(
    ("sessions", "protocol", "told"),
    [
        ([["a", "b"], ["c", "d"], ["e", "f"]], "class", "6 classes in 3 sessions of 2"),
        ([["a", "b", "c"], ["d"], ["e"]], "class", "5 classes in 3 sessions of 3 and 2 × 1"),
        ([["a", "b"], ["c", "d"], ["e"]], "class", "5 classes in 3 sessions of 2 × 2 and 1"),
        ([["a", "b"], ["c"]], "class", "3 classes in 2 sessions of 2 and 1"),
        (
            [["a", "b", "c"], ["d", "e"], ["f", "g"], ["h"]],
            "class",
            "8 classes in 4 sessions of 3, 2 × 2 and 1",
        ),
        (
            [["a"], ["b"], ["c", "d"], ["e", "f"]],
            "class",
            "6 classes in 4 sessions of 2 × 1 and 2 × 2",
        ),
        ([["a"]], "class", "1 class in 1 session"),
        (
            [["a", "b"]] * 2,
            "domain",
            "2 classes, the same in each of 2 sessions: session 1, session 2",
        ),
        (
            [["a"], ["a", "b"]],
            "mixed",
            "2 classes, known and new ones in each of 2 sessions: session 1, session 2",
        ),
    ],
)
def test_the_cut_into_sessions_in_words(
    sessions: list[list[str]], protocol: str, told: str, make_stream: MakeStream
) -> None:
    assert cut(make_stream(sessions, protocol=protocol)) == told


def test_what_makes_numbers_rough_is_said(make_stream: MakeStream) -> None:
    assert len(list(announce(make_stream([["a", "b"]], test=5)))) == 1
    _, rough = announce(make_stream([["a", "b"], ["c"]], test=4))
    assert "3 of 3 classes have fewer than 5 test pictures ('a' has 4 test pictures)" in rough
    _, single, few = announce(make_stream([["a"]], test=1))
    assert "a single class, 'a'" in single and "('a' has 1 test picture)" in few
    _, none = announce(make_stream([["a", "b"]], test=0))
    assert "no class has a test picture, so there will be no accuracy" in none
