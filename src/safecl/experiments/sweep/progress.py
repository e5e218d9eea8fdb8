"""What a person sees during a sweep: a line per run at work and one for all; or plain lines in a log."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safecl.engine.folder import read_json
from safecl.engine.progress import Show, clock
from safecl.experiments.sweep.worker import STATUS

if TYPE_CHECKING:
    from rich.console import Group


@dataclass(frozen=True)
class Place:
    """How far a run is: session ``session`` of ``sessions``, in ``phase``, at ``done`` of ``total``."""

    session: int
    sessions: int
    phase: str
    done: int
    total: int

    @property
    def share(self) -> float:
        """The part of the run that is done; sessions count alike."""
        within = self.done / self.total if self.total else 0.0
        return (self.session - 1 + within) / self.sessions if self.session and self.sessions else 0.0

    def __str__(self) -> str:
        if not self.session:
            return "starting"
        of = f" of {self.sessions}" if self.sessions else ""
        return f"session {self.session}{of}, {self.phase} {self.done}/{self.total}"


def read_place(folder: Path) -> Place:
    """Where the run in a folder is, from the file that its worker writes."""
    status, facts = read_json(folder / STATUS) or {}, read_json(folder / "facts.json") or {}
    sessions = len(facts.get("stream", {}).get("sessions", []))
    if status.get("state") != "running":
        return Place(0, sessions, "", 0, 0)
    return Place(status["session"], sessions, status["phase"], status["done"], status["total"])


@dataclass
class Standing:
    """All of a sweep at one moment. ``running``: by title, where each run is and the seconds it has taken."""

    total: int
    done: int
    failed: int
    running: Mapping[str, tuple[Place, float]]
    waiting: int
    took: Sequence[float]  # seconds of the runs that this sweep has finished
    jobs: int

    @property
    def left(self) -> float | None:
        """Seconds until the end: from the runs that are finished, or from how far those at work are."""
        lengths = list(self.took)
        lengths += [seconds / place.share for place, seconds in self.running.values() if place.share > 0.05]
        if not lengths:
            return None
        mean = sum(lengths) / len(lengths)
        ahead = [max(mean - seconds, 0.0) for _, seconds in self.running.values()] + [mean] * self.waiting
        return max(sum(ahead) / max(min(self.jobs, len(ahead)), 1), max(ahead, default=0.0))

    @property
    def lines(self) -> list[str]:
        """A line per run at work, and one for the whole."""
        runs = [f"{title}: {place}, {clock(seconds)}" for title, (place, seconds) in self.running.items()]
        return [*runs, str(self)]

    def __str__(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.done} of {self.total} runs done{failed}, {len(self.running)} at work, left {clock(self.left)}"


class Board:
    """Shows nothing."""

    def __enter__(self) -> "Board":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def say(self, text: str) -> None:
        pass

    def show(self, standing: Standing) -> None:
        pass


class PlainBoard(Board):
    """A line where a run starts or ends, and all of the sweep every half minute."""

    def __init__(self, every: float = 30.0) -> None:
        self.every, self.shown = every, time.monotonic()

    def say(self, text: str) -> None:
        print(text, flush=True)

    def show(self, standing: Standing) -> None:
        if time.monotonic() - self.shown >= self.every:
            self.shown = time.monotonic()
            self.say("\n".join(standing.lines))


class LiveBoard(Board):
    """The lines of the runs at work, drawn anew in their place."""

    def __init__(self) -> None:
        from rich.live import Live

        self.live = Live(auto_refresh=False, transient=True)

    def __enter__(self) -> Board:
        self.live.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.live.stop()

    def say(self, text: str) -> None:
        self.live.console.print(text, highlight=False, markup=False)

    def show(self, standing: Standing) -> None:
        self.live.update(drawn(standing, max(self.live.console.height - 1, 2)), refresh=True)


def drawn(standing: Standing, height: int) -> "Group":
    """The lines, none broken; where there are more than the terminal is high, the last runs are only counted."""
    from rich.console import Group
    from rich.text import Text

    *runs, overall = standing.lines
    if len(runs) >= height:
        runs = [*runs[: height - 2], f"... and {len(runs) - height + 2} more"]
    return Group(*(Text(line, no_wrap=True, overflow="ellipsis") for line in (*runs, overall)))


def make_board(show: Show = "auto") -> Board:
    """``auto``: live on a terminal, plain elsewhere."""
    if show == "quiet":
        return Board()
    return LiveBoard() if show == "live" or (show == "auto" and sys.stdout.isatty()) else PlainBoard()
