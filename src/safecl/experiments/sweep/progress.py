"""What a person sees during a sweep: a line for all of it and one per run at work; or plain lines in a log."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from rich.console import Console
from rich.live import Live
from rich.text import Text

from safecl.engine.folder import read_json
from safecl.engine.progress import Show, clock
from safecl.experiments.sweep.worker import STATUS
from safecl.lines import shown, text_for


def read_place(folder: Path) -> tuple[str, float]:
    """How far the run in a folder is: in words, and as a share of the whole, to which all sessions count alike."""
    status, facts = read_json(folder / STATUS) or {}, read_json(folder / "facts.json") or {}
    session, sessions = status.get("session", 0), len(facts.get("stream", {}).get("sessions", []))
    if not session or not sessions:
        return "starting", 0.0
    done, total = status["done"], status["total"]
    share = (session - 1 + done / max(total, 1)) / sessions
    return f"session {session} of {sessions}, {status['phase']} {done}/{total}", share


Running: TypeAlias = Mapping[str, tuple[str, float, float]]  # by title: its place, its share, its seconds so far


def time_left(running: Running, waiting: int, took: Sequence[float], jobs: int) -> float | None:
    """Seconds until the end: from those of the runs that are finished, or from how far those at work are."""
    lengths = [*took, *(seconds / share for _, share, seconds in running.values() if share > 0.05)]
    if not lengths:
        return None
    mean = sum(lengths) / len(lengths)
    ahead = [max(mean - seconds, 0.0) for *_, seconds in running.values()] + [mean] * waiting
    return max(sum(ahead) / max(min(jobs, len(ahead)), 1), max(ahead, default=0.0))


def standing(
    total: int, done: int, failed: int, running: Running, waiting: int, took: Sequence[float], jobs: int
) -> str:
    """A line for the whole sweep, and one per run at work."""
    wrong, left = f", {failed} failed" if failed else "", clock(time_left(running, waiting, took, jobs))
    whole = f"{done} of {total} runs done{wrong}, {len(running)} at work, left {left}"
    return "\n".join([whole, *(f"{title}: {at}, {clock(seconds)}" for title, (at, _, seconds) in running.items())])


class Board:
    """Shows a sweep inside ``with board.live``: drawn in place on a terminal, now and then in a log, or not at all."""

    def __init__(self, show: Show = "auto", every: float = 30.0, console: Console | None = None) -> None:
        self.console = console or Console(quiet=show == "quiet")
        self.drawn = self.console.is_terminal and show != "plain"
        self.live = Live(console=self.console, auto_refresh=False, transient=True)
        self.every, self.shown = every, time.monotonic()

    def say(self, text: str) -> None:
        self.console.print(text_for(self.console, text), highlight=False, soft_wrap=True)

    def show(self, lines: str) -> None:
        """They are cut at the width of a terminal, and those below its end are omitted."""
        if self.drawn:
            self.live.update(Text(shown(lines, keep="\n"), no_wrap=True, overflow="ellipsis"), refresh=True)
        elif time.monotonic() - self.shown >= self.every:
            self.shown = time.monotonic()
            self.say(lines)
