"""What a person sees: one live line on a terminal, plain lines elsewhere, nothing if asked."""

import io
import time

import pytest
from rich.console import Console

from safecl.engine.progress import Live, Notebook, Plain, Progress, make_progress
from tests.conftest import raises


def work(progress: Progress, note: str = "epoch 1/2  cls 0.5  99 images/s") -> None:
    with progress.phase("Session 1  slow", 4, 2) as phase:
        phase.advance(1, note)
        phase.advance()
    progress.say("Session 1 of 5: 10 classes")


def test_a_word_that_is_no_way_to_show_is_refused() -> None:
    with raises("name.unknown.near", given="quite", near="quiet"):
        make_progress("quite")  # type: ignore[arg-type]


def test_a_log_gets_whole_lines(capsys: pytest.CaptureFixture[str]) -> None:
    work(Plain())
    work(Plain(), note="")  # a short pass that has nothing to say
    text = capsys.readouterr().out
    assert text.count("Session 1  slow: done in") == 1 and "cls 0.5  99 images/s" in text
    assert text.count("Session 1 of 5") == 2 and "\r" not in text and "\x1b" not in text


def test_a_long_phase_says_how_long_it_will_take(capsys: pytest.CaptureFixture[str]) -> None:
    with Plain(every=0.0).phase("Session 1  slow", 4, done=2) as phase:
        time.sleep(0.01)
        phase.advance(1, "cls 0.5")
    assert capsys.readouterr().out.startswith("Session 1  slow: 3/4, 0 s left  cls 0.5")


def test_a_terminal_gets_one_line_a_phase() -> None:
    live = Live()
    live.console = Console(file=io.StringIO(), force_terminal=True, width=120)
    work(live)
    text = live.console.file.getvalue()  # type: ignore[attr-defined]
    assert "Session 1  slow" in text and "4/4" in text and "99 images/s" in text


def test_work_without_steps_shows_how_long_it_takes_and_leaves_the_screen() -> None:
    live = Live()
    live.console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with live.phase("Changing m.safecl", 0):
        pass
    text = live.console.file.getvalue()  # type: ignore[attr-defined]
    assert "Changing m.safecl 0:00" in text and "0/0" not in text and "-:--" not in text
    assert text.rstrip().endswith("\x1b[2K")  # erased


class Cell:
    """What IPython's display gives for a cell: the bundles that it has shown."""

    def __init__(self) -> None:
        self.shown: list[dict[str, str]] = []

    def display(self, bundle: dict[str, str], *, raw: bool, display_id: bool) -> "Cell":
        assert raw and display_id
        self.shown.append(bundle)
        return self

    def update(self, bundle: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.shown.append(bundle)


def test_a_notebook_gets_one_bar_a_phase_that_ends_full(capsys: pytest.CaptureFixture[str]) -> None:
    cell = Cell()
    work(Notebook(cell.display), note="<b>")
    first, *_, last = cell.shown
    assert '<progress value="2" max="4">' in first["text/html"]
    assert '<progress value="4" max="4">' in last["text/html"]
    assert "&lt;b&gt;" in last["text/html"] and "<b>" not in last["text/html"]
    assert "left" in first["text/plain"] and "left" not in last["text/plain"]
    assert capsys.readouterr().out == "Session 1 of 5: 10 classes\n"


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    work(Progress())
    work(make_progress("quiet"))
    assert capsys.readouterr().out == ""
    assert isinstance(make_progress("auto"), Plain)  # no terminal here
    assert isinstance(make_progress("live"), Live)
