"""What a person sees while a run goes on: one live line on a terminal or in a notebook, plain lines
in a log, or nothing.
"""

import html
import importlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from safecl.errors import unknown
from safecl.lines import shown

if TYPE_CHECKING:
    from rich.progress import Task
    from rich.text import Text

Show: TypeAlias = Literal["auto", "live", "notebook", "plain", "quiet"]
REDRAWN = 0.1  # seconds between two states of a bar in a notebook, each of which is a message


class Phase:
    """A piece of work of known length; ``show`` is called whenever it goes on."""

    def __init__(
        self,
        title: str,
        total: int,
        done: int,
        show: Callable[["Phase"], None] = lambda phase: None,
    ) -> None:
        self.title = title
        self.total = total
        self.done = done
        self.show = show
        self.note = ""
        self.skipped = done  # by an earlier process: not counted in the estimate of the time left
        self.started = self.said = time.monotonic()

    def advance(self, steps: int = 1, note: str = "") -> None:
        """``note``: numbers, the most important first, two spaces between any two."""
        self.done = self.done + steps
        self.note = note or self.note
        self.show(self)


class Progress:
    """Shows phases and prints sentences; as it is, none."""

    # whether notes have the loss and its terms, under the names they have in papers
    verbose = False

    def say(self, text: str) -> None:
        pass

    def phase(self, title: str, total: int, done: int = 0) -> AbstractContextManager[Phase]:
        return nullcontext(Phase(title, total, done))


class Plain(Progress):
    """A line at the end of each phase that has something to say, and one every half minute of a
    long one.
    """

    def __init__(self, every: float = 30.0) -> None:
        self.every = every

    def say(self, text: str) -> None:
        print(shown(text, keep="\n"), flush=True)

    @contextmanager
    def phase(self, title: str, total: int, done: int = 0) -> Iterator[Phase]:
        phase = Phase(title, total, done, self.show)
        yield phase
        took = time.monotonic() - phase.started
        if phase.note or took >= self.every:
            self.say(f"{title}: done in {took:.1f} s  {phase.note}".rstrip())

    def show(self, phase: Phase) -> None:
        now = time.monotonic()
        if now - phase.said >= self.every:
            phase.said = now
            left = (
                (now - phase.started)
                * (phase.total - phase.done)
                / max(phase.done - phase.skipped, 1)
            )
            self.say(f"{phase.title}: {phase.done}/{phase.total}, {left:.0f} s left  {phase.note}")


class Live(Progress):
    """One line per phase, drawn anew while it goes on; it stays on the screen if it had something
    to say.
    """

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console()

    def say(self, text: str) -> None:
        from safecl.lines import print_sentence

        print_sentence(self.console, text)

    @contextmanager
    def phase(self, title: str, total: int, done: int = 0) -> Iterator[Phase]:
        from rich.progress import Progress as Bar
        from rich.progress import ProgressColumn, Task
        from rich.text import Text

        class Line(ProgressColumn):
            """All of the line in one column, which alone knows what to omit."""

            def render(_, task: Task) -> Text:
                return _line(task, self.console.width, self.console.options.ascii_only)

        with Bar(Line(), console=self.console) as bar:
            task = bar.add_task(title, total=total, completed=done, note="")
            phase = Phase(
                title,
                total,
                done,
                lambda phase: bar.update(task, completed=phase.done, note=phase.note),
            )
            yield phase
            # a line that had nothing to say makes room for the next
            bar.live.transient = not phase.note


class Notebook(Plain):
    """A bar in a cell, which is drawn anew while a phase goes on; sentences are printed.

    ``display``: that of IPython, which shows a bundle and gives what can replace it.
    """

    def __init__(self, display: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self.display: Any = display or importlib.import_module("IPython.display").display

    @contextmanager
    def phase(self, title: str, total: int, done: int = 0) -> Iterator[Phase]:
        cell = self.display(_bar(Phase(title, total, done)), raw=True, display_id=True)
        drawn = time.monotonic()

        def show(phase: Phase) -> None:
            nonlocal drawn
            if time.monotonic() - drawn >= REDRAWN:
                drawn = time.monotonic()
                cell.update(_bar(phase), raw=True)

        phase = Phase(title, total, done, show)
        yield phase
        cell.update(_bar(phase), raw=True)


def _bar(phase: Phase) -> dict[str, str]:
    """A phase as HTML, and as text for what shows none."""
    spent = time.monotonic() - phase.started
    steps = max(phase.done - phase.skipped, 0)
    left = spent / steps * (phase.total - phase.done) if steps else None
    pieces = [f"{phase.done}/{phase.total}", clock(spent)] if phase.total else [clock(spent)]
    pieces += [f"left {clock(left)}"] if phase.done < phase.total else []
    text = shown(f"{phase.title}  {' '.join(pieces)}  {phase.note}".rstrip())
    bar = f'<progress value="{phase.done}" max="{phase.total}"></progress> ' if phase.total else ""
    return {"text/html": f"<div>{bar}{html.escape(text)}</div>", "text/plain": text}


def in_notebook() -> bool:
    """Whether this process answers the cells of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def _line(task: "Task", width: int, ascii_only: bool) -> "Text":
    """Phase, bar, time left, count, time spent, note: what does not fit is omitted whole, the last
    first.
    """
    from rich.text import Text

    total = int(task.total or 0)
    done = int(task.completed)
    bar = 16 if width >= 80 else 6
    spent = clock(task.finished_time if task.finished else task.elapsed)
    pieces = (
        [f" left {clock(task.time_remaining)}", f" {done}/{total}", f" {spent}"]
        if total
        else [f" {spent}"]
    )
    pieces += [f"  {piece}" for piece in str(task.fields["note"]).split("  ") if piece]
    line = Text(shown(task.description)[:width], no_wrap=True)
    if total and len(line) + 1 + bar <= width:
        full = round(bar * done / total)
        signs = "#-" if ascii_only else "━─"
        line.append(" ").append(signs[0] * full, style="bar.complete").append(
            signs[1] * (bar - full), style="bar.back"
        )
    for piece in pieces:
        if len(line) + len(piece) > width:
            break
        line.append(piece)
    return line


def clock(seconds: float | None) -> str:
    """75 → "1:15"; "-:--" where it is not known."""
    if seconds is None:
        return "-:--"
    minutes, rest = divmod(round(seconds), 60)
    return (
        f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
        if minutes >= 60
        else f"{minutes}:{rest:02d}"
    )


def make_progress(show: Show = "auto", verbose: bool = False) -> Progress:
    """``auto``: live on a terminal, a bar in the cell of a notebook, plain elsewhere."""
    if show not in get_args(Show):
        raise unknown("show =", show, get_args(Show))
    if show == "auto":
        show = "live" if sys.stdout.isatty() else "notebook" if in_notebook() else "plain"
    kinds: dict[str, type[Progress]] = {"live": Live, "notebook": Notebook, "plain": Plain}
    made = kinds.get(show, Progress)()
    made.verbose = verbose
    return made
