"""What a person sees during a sweep: a line for all of it and one per run at work; or plain lines in a log."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from safecl.engine.folder import read_json
from safecl.engine.progress import Show, clock
from safecl.experiments.sweep.worker import STATUS


def read_place(folder: Path) -> tuple[str, float]:
    """How far the run in a folder is: in words, and as a share of the whole, to which all sessions count alike."""
    status, facts = read_json(folder / STATUS) or {}, read_json(folder / "facts.json") or {}
    session, sessions = status.get("session", 0), len(facts.get("stream", {}).get("sessions", []))
    if not session or not sessions:
        return "starting", 0.0
    done, total = status["done"], status["total"]
    share = (session - 1 + done / max(total, 1)) / sessions
    return f"session {session} of {sessions}, {status['phase']} {done}/{total}", share


@dataclass
class Standing:
    """All of a sweep at one moment. ``running``: by title, the place of each run, its share and its seconds so far."""

    total: int
    done: int
    failed: int
    running: Mapping[str, tuple[str, float, float]]
    waiting: int
    took: Sequence[float]  # seconds of the runs that this sweep has finished
    jobs: int

    @property
    def left(self) -> float | None:
        """Seconds until the end: from the runs that are finished, or from how far those at work are."""
        lengths = [*self.took, *(seconds / share for _, share, seconds in self.running.values() if share > 0.05)]
        if not lengths:
            return None
        mean = sum(lengths) / len(lengths)
        ahead = [max(mean - seconds, 0.0) for *_, seconds in self.running.values()] + [mean] * self.waiting
        return max(sum(ahead) / max(min(self.jobs, len(ahead)), 1), max(ahead, default=0.0))

    def __str__(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        whole = f"{self.done} of {self.total} runs done{failed}, {len(self.running)} at work, left {clock(self.left)}"
        runs = [f"{title}: {place}, {clock(seconds)}" for title, (place, _, seconds) in self.running.items()]
        return "\n".join([whole, *runs])


class Board:
    """Shows a sweep inside ``with board.live``: drawn in place on a terminal, now and then in a log, or not at all."""

    def __init__(self, show: Show = "auto", every: float = 30.0, console: Console | None = None) -> None:
        self.console = console or Console(quiet=show == "quiet")
        self.drawn = self.console.is_terminal and show != "plain"
        self.live = Live(console=self.console, auto_refresh=False, transient=True)
        self.every, self.shown = every, time.monotonic()

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def show(self, standing: Standing) -> None:
        """Lines are cut at the width of a terminal, and those below its end are omitted."""
        if self.drawn:
            self.live.update(Text(str(standing), no_wrap=True, overflow="ellipsis"), refresh=True)
        elif time.monotonic() - self.shown >= self.every:
            self.shown = time.monotonic()
            self.say(str(standing))
