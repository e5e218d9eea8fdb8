"""What a person sees while a run goes on: one live line on a terminal, plain lines in a log, or nothing."""

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

Show: TypeAlias = Literal["auto", "live", "plain", "quiet"]


class Phase(Protocol):
    """A piece of work of known length."""

    def advance(self, steps: int = 1, note: str = "") -> None: ...


class Progress(Protocol):
    """Shows phases and prints sentences."""

    def say(self, text: str) -> None: ...

    def phase(self, title: str, total: int, done: int = 0) -> AbstractContextManager[Phase]: ...


class Quiet:
    """Shows nothing."""

    def say(self, text: str) -> None:
        pass

    @contextmanager
    def phase(self, title: str, total: int, done: int = 0) -> Iterator[Phase]:
        yield self

    def advance(self, steps: int = 1, note: str = "") -> None:
        pass


class Plain:
    """A line at the end of each phase that has something to say, and one every half minute of a long one."""

    def __init__(self, every: float = 30.0) -> None:
        self.every = every

    def say(self, text: str) -> None:
        print(text, flush=True)

    @contextmanager
    def phase(self, title: str, total: int, done: int = 0) -> Iterator[Phase]:
        phase = _PlainPhase(self, title, total, done)
        yield phase
        took = time.monotonic() - phase.started
        if phase.note or took >= self.every:
            self.say(f"{title}: done in {took:.1f} s  {phase.note}".rstrip())


class _PlainPhase:
    def __init__(self, plain: Plain, title: str, total: int, done: int) -> None:
        self.plain, self.title, self.total, self.done, self.note = plain, title, total, done, ""
        self.skipped = done  # by an earlier process: not counted in the estimate of the time left
        self.started = self.said = time.monotonic()

    def advance(self, steps: int = 1, note: str = "") -> None:
        self.done, self.note = self.done + steps, note or self.note
        now = time.monotonic()
        if now - self.said >= self.plain.every:
            self.said = now
            left = (now - self.started) * (self.total - self.done) / max(self.done - self.skipped, 1)
            self.plain.say(f"{self.title}: {self.done}/{self.total}, {left:.0f} s left  {self.note}")


class Live:
    """A progress bar a phase."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console()

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False)

    @contextmanager
    def phase(self, title: str, total: int, done: int = 0) -> Iterator[Phase]:
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with Bar(*columns, console=self.console) as progress:
            phase = _LivePhase(progress, progress.add_task(title, total=total, completed=done, note=""))
            yield phase
            progress.live.transient = not phase.note  # a line that had nothing to say makes room for the next


class _LivePhase:
    def __init__(self, progress: "Bar", task: "TaskID") -> None:
        self.progress, self.task, self.note = progress, task, ""

    def advance(self, steps: int = 1, note: str = "") -> None:
        self.note = note or self.note
        self.progress.update(self.task, advance=steps, note=self.note)


def make_progress(show: Show = "auto") -> Progress:
    """``auto``: live on a terminal, plain elsewhere."""
    if show == "quiet":
        return Quiet()
    if show == "live" or (show == "auto" and sys.stdout.isatty()):
        return Live()
    return Plain()
