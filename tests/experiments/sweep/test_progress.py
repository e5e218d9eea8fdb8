"""What is shown while a sweep goes on."""

from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from safecl.experiments.sweep import sweep
from safecl.experiments.sweep.sweep import Board, Loop


@pytest.fixture
def standing(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a sweep of twelve runs shows, of which ``running`` began so many seconds ago."""

    def show(*running: float) -> list[str]:
        executor: Any = SimpleNamespace(jobs=2)
        loop: Any = Loop([], Path(), executor, Board("quiet"), 12, now=lambda: 100.0)
        monkeypatch.setattr(sweep, "read_place", lambda folder: "session 2 of 5")
        named = {i: SimpleNamespace(title=f"preset=safe seed={i}") for i in range(len(running))}
        loop.running = {str(i): (named[i], 100.0 - seconds) for i, seconds in enumerate(running)}
        loop.done = 2
        loop.failed = {"a": "It failed."}
        found: list[str] = loop.standing().splitlines()
        return found

    return show


@pytest.fixture
def lines(standing: Any) -> str:
    return "\n".join(standing(*[20.0] * 30))


def terminal(**options: Any) -> tuple[Board, StringIO]:
    file = StringIO()
    return (
        Board(console=Console(file=file, force_terminal=True, color_system=None, **options)),
        file,
    )


def test_a_line_for_all_and_one_for_each_run_at_work(standing: Any) -> None:
    assert standing(20.0, 20.0) == [
        "2 of 12 runs done, 1 failed, 2 at work",
        "preset=safe seed=0: session 2 of 5, 0:20",
        "preset=safe seed=1: session 2 of 5, 0:20",
    ]


@pytest.mark.parametrize("width", [20, 50, 100])
def test_no_line_is_broken_and_the_first_ones_stay_on_the_screen(width: int, lines: str) -> None:
    board, file = terminal(width=width, height=10)
    with board.live:
        file.truncate(file.seek(0))
        board.show(lines)
        shown = file.getvalue().replace("\r", "").replace("\x1b[2K", "").rstrip("\n").split("\n")
    assert len(shown) == 10 and all(len(line) <= width for line in shown)
    assert shown[0].startswith("2 of 12 runs done") and shown[1].startswith("preset=safe seed=0")


def test_a_log_gets_whole_lines_now_and_then(
    lines: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Board(every=1000).show(lines)
    assert capsys.readouterr().out == ""
    board = Board("plain", every=0)
    with board.live:
        board.say("a [run] has begun " + "x" * 300)
        board.show(lines)
    assert capsys.readouterr().out == "a [run] has begun " + "x" * 300 + f"\n{lines}\n"
    quiet = Board("quiet", every=0)
    with quiet.live:
        quiet.say("begun")
        quiet.show(lines)
    assert capsys.readouterr().out == ""


def test_a_terminal_is_drawn_live_and_left_clean(lines: str) -> None:
    board, file = terminal(width=80, height=10)
    with board.live:
        board.show(lines)
        board.say("a [run] is done")
    assert "a [run] is done\n" in file.getvalue()
    assert "\x1b[2K" in file.getvalue().rpartition("seed=1")[2]
