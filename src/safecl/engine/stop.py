"""Signals that ask a run to save and stop."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

# seconds within which a second signal is an echo of the first, from a terminal and a launcher both
PATIENCE = 1.0


@contextlib.contextmanager
def stoppable(patience: float = PATIENCE) -> Iterator[Callable[[], bool]]:
    """SIGINT and SIGTERM make what this gives say yes; one more, later, stops the run at once."""
    asked: list[float] = []

    def ask(number: int, frame: Any) -> None:
        if asked and time.monotonic() - asked[0] > patience:
            raise KeyboardInterrupt
        asked.append(time.monotonic())

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # only the main thread can install handlers
        before = {}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
