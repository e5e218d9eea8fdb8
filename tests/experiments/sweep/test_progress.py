"""What is shown while a sweep goes on."""

from io import StringIO

import pytest
from rich.console import Console

from safecl.experiments.sweep.progress import (
    Board,
    LiveBoard,
    Place,
    PlainBoard,
    Standing,
    drawn,
    make_board,
)


def standing(running: int = 2, waiting: int = 4, took: tuple[float, ...] = (60.0, 40.0), jobs: int = 2) -> Standing:
    at = {f"preset=safe seed={seed}": (Place(2, 5, "fast", 10, 20), 20.0) for seed in range(running)}
    return Standing(12, len(took), 1, at, waiting, took, jobs)


def test_a_line_a_run_at_work_and_one_for_all() -> None:
    assert standing(took=(60.0, 60.0)).lines == [
        "preset=safe seed=0: session 2 of 5, fast 10/20, 0:20",
        "preset=safe seed=1: session 2 of 5, fast 10/20, 0:20",
        "2 of 12 runs done, 1 failed, 2 at work, left 2:50",  # a run: mean of 60, 60, 20/0.3, 20/0.3
    ]


def test_the_time_left_is_that_of_what_is_ahead_over_the_workers() -> None:
    alike = {"a": (Place(1, 2, "x", 0, 1), 10.0), "b": (Place(1, 2, "x", 0, 1), 30.0)}
    assert Standing(8, 2, 0, alike, 4, (50.0, 50.0), 2).left == pytest.approx((40 + 20 + 4 * 50) / 2)
    assert Standing(8, 2, 0, alike, 0, (50.0, 50.0), 2).left == pytest.approx(40)  # the longest of what is at work
    assert Standing(8, 0, 0, {}, 8, (), 2).left is None and "left -:--" in str(Standing(8, 0, 0, {}, 8, (), 2))
    assert Standing(8, 2, 0, {}, 0, (50.0,), 2).left == 0


@pytest.mark.parametrize("width", [20, 50, 100])
def test_no_line_is_broken_and_none_is_lost_below_the_screen(width: int) -> None:
    file = StringIO()
    console = Console(file=file, width=width)
    console.print(drawn(standing(running=30), height=10))
    shown = file.getvalue().rstrip("\n").split("\n")
    assert len(shown) == 10 and all(len(line) <= width for line in shown)
    assert shown[-1].startswith("2 of 12 runs done") and shown[-2].startswith("... and 22 more")


def test_a_log_gets_whole_lines_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    board = PlainBoard(every=1000)
    board.show(standing())
    assert capsys.readouterr().out == ""
    board = PlainBoard(every=0)
    with board:
        board.say("begun")
        board.show(standing())
    assert capsys.readouterr().out.splitlines() == ["begun", *standing().lines]


def test_a_terminal_is_drawn_live_and_left_clean(capsys: pytest.CaptureFixture[str]) -> None:
    board = make_board("live")
    assert isinstance(board, LiveBoard)
    with board:
        board.show(standing())
        board.say("a [run] is done")
    assert "a [run] is done" in capsys.readouterr().out
    assert type(make_board("quiet")) is Board and type(make_board("auto")) is PlainBoard
