"""What is shown while a sweep goes on."""

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from safecl.experiments.sweep.sweep import Board, standing, time_left


def lines(running: int = 2, took: tuple[float, ...] = (60.0, 40.0)) -> str:
    at = {f"preset=safe seed={seed}": ("session 2 of 5, fast 10/20", 0.3, 20.0) for seed in range(running)}
    return standing(12, len(took), 1, at, 4, took, 2)


def terminal(**options: Any) -> tuple[Board, StringIO]:
    file = StringIO()
    return Board(console=Console(file=file, force_terminal=True, color_system=None, **options)), file


def test_a_line_for_all_and_one_for_each_run_at_work() -> None:
    assert lines(took=(60.0, 60.0)).splitlines() == [
        "2 of 12 runs done, 1 failed, 2 at work, left 2:50",  # a run: mean of 60, 60, 20/0.3, 20/0.3
        "preset=safe seed=0: session 2 of 5, fast 10/20, 0:20",
        "preset=safe seed=1: session 2 of 5, fast 10/20, 0:20",
    ]


def test_the_time_left_is_that_of_what_is_ahead_over_the_workers() -> None:
    alike = {"a": ("x", 0.0, 10.0), "b": ("x", 0.0, 30.0)}
    assert time_left(alike, 4, (50.0, 50.0), 2) == pytest.approx((40 + 20 + 4 * 50) / 2)
    assert time_left(alike, 0, (50.0, 50.0), 2) == pytest.approx(40)  # the longest of what is at work
    assert time_left({}, 8, (), 2) is None and "left -:--" in standing(8, 0, 0, {}, 8, (), 2)
    assert time_left({}, 0, (50.0,), 2) == 0


@pytest.mark.parametrize("width", [20, 50, 100])
def test_no_line_is_broken_and_the_first_ones_stay_on_the_screen(width: int) -> None:
    board, file = terminal(width=width, height=10)
    with board.live:
        file.truncate(file.seek(0))
        board.show(lines(running=30))
        shown = file.getvalue().replace("\r", "").replace("\x1b[2K", "").rstrip("\n").split("\n")
    assert len(shown) == 10 and all(len(line) <= width for line in shown)
    assert shown[0].startswith("2 of 12 runs done") and shown[1].startswith("preset=safe seed=0")


def test_a_log_gets_whole_lines_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    Board(every=1000).show(lines())
    assert capsys.readouterr().out == ""
    board = Board("plain", every=0)
    with board.live:
        board.say("a [run] has begun " + "x" * 300)
        board.show(lines())
    assert capsys.readouterr().out == "a [run] has begun " + "x" * 300 + f"\n{lines()}\n"
    quiet = Board("quiet", every=0)
    with quiet.live:
        quiet.say("begun")
        quiet.show(lines())
    assert capsys.readouterr().out == ""


def test_a_terminal_is_drawn_live_and_left_clean() -> None:
    board, file = terminal(width=80, height=10)
    with board.live:
        board.show(lines())
        board.say("a [run] is done")
    assert "a [run] is done\n" in file.getvalue()
    assert "\x1b[2K" in file.getvalue().rpartition("seed=1")[2]
