"""One run of a sweep, in a process of its own: ``python -m safecl.experiments.sweep.worker FOLDER``.

The job comes as a line of JSON on stdin, which then stays open. It is closed when the sweep is gone: then the run saves
its state and stops.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from filelock import FileLock, Timeout

from safecl.atomic import write_json
from safecl.engine.progress import Phase, Plain
from safecl.errors import SafeclError, Stopped

State: TypeAlias = Literal["done", "failed", "stopped", "busy", "died"]
CODES: dict[State, int] = {"done": 0, "failed": 2, "busy": 75, "stopped": 130}  # of the process
STATUS, LOG, LOCK = "status.json", "worker.log", "worker.lock"  # in the run's folder
NOTE_SECONDS = 1.0  # between two notes of where a run is


@dataclass(frozen=True)
class Job:
    """What a worker needs: resolved settings, how they were written, the sweep's command, and its threads."""

    settings: dict[str, Any]
    given: str
    command: str
    threads: int


@dataclass(frozen=True)
class Outcome:
    """How a worker ended. ``busy``: another process works on the run; ``died``: ended by a signal."""

    state: State
    sentence: str = ""


class Status(Plain):
    """Progress as lines in a log, and as a small file in the run's folder that a sweep reads."""

    def __init__(self, folder: Path, note_seconds: float = NOTE_SECONDS) -> None:
        super().__init__()
        self.folder, self.note_seconds, self.noted = folder, note_seconds, 0.0
        self.host = {"host": socket.gethostname(), "process": os.getpid()}

    @contextmanager
    def phase(self, title: str, total: int, done: int = 0) -> Iterator[Phase]:
        self.note(title, done, total)
        with super().phase(title, total, done) as phase:
            yield phase

    def show(self, phase: Phase) -> None:
        super().show(phase)
        self.note(phase.title, phase.done, phase.total)

    def note(self, title: str, done: int, total: int) -> None:
        """``title``: "Session 2  fast", as the engine names its phases; empty before the first."""
        now = time.monotonic()
        if self.noted and now - self.noted < self.note_seconds:
            return
        self.noted = now
        session, _, phase = title.partition("  ")
        number = session.rpartition(" ")[2]
        place = {"session": int(number) if number.isdecimal() else 0, "phase": phase, "done": done, "total": total}
        with contextlib.suppress(SafeclError):  # a run does not end because its progress cannot be shown
            write_json(self.folder / STATUS, {"state": "running", **place, **self.host})


def work(folder: Path, job: Job) -> Outcome:
    """Run a job in ``folder`` unless another worker does; what is said goes to its log."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        return Outcome("busy")
    with lock, (folder / LOG).open("a", encoding="utf-8", errors="replace", buffering=1) as log:
        with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
            Status(folder).note("", 0, 0)
            outcome = _run(folder, job)
            if outcome.sentence:
                print(outcome.sentence, flush=True)
        with contextlib.suppress(SafeclError):
            write_json(folder / STATUS, asdict(outcome))
    return outcome


def _run(folder: Path, job: Job) -> Outcome:
    try:
        import torch

        from safecl.experiments.config import validate
        from safecl.experiments.launch import launch

        torch.set_num_threads(job.threads)
        launch(validate(job.settings), folder, Status(folder), facts={"command": job.command}, given=job.given)
    except SafeclError as error:
        return Outcome("failed", str(error))
    except (Stopped, KeyboardInterrupt):
        return Outcome("stopped")
    except Exception as error:
        traceback.print_exc()
        first = next(iter(str(error).strip().splitlines()), "")
        return Outcome("failed", f"It ended with {type(error).__name__}: {first}; {folder / LOG} says where.")
    return Outcome("done")


def main() -> None:
    job = Job(**json.loads(sys.stdin.readline()))
    threading.Thread(target=_stop_without_sweep, daemon=True).start()
    outcome = work(Path(sys.argv[1]), job)
    sys.stdout.flush()
    os._exit(CODES[outcome.state])  # the thread still reads


def _stop_without_sweep() -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
