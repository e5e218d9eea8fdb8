"""One run of a sweep, in a process of its own: ``python -m safecl.experiments.sweep.worker FOLDER``."""

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
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
LOCK_SECONDS = 2.0  # that a worker waits for another one on the same run


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

    @contextmanager
    def phase(self, title: str, total: int, done: int = 0) -> Iterator[Phase]:
        self.note(title, total, done)
        with super().phase(title, total, done) as phase:
            yield phase

    def show(self, phase: Phase) -> None:
        super().show(phase)
        self.note(phase.title, phase.total, phase.done)

    def note(self, title: str, total: int, done: int) -> None:
        """``title``: "Session 2  fast", as the engine names its phases."""
        if self.noted and time.monotonic() - self.noted < self.note_seconds:
            return
        self.noted = time.monotonic()
        session, _, phase = title.removeprefix("Session ").partition("  ")
        place = {"session": int(session), "phase": phase, "done": done, "total": total}
        where = {"host": socket.gethostname(), "process": os.getpid()}
        with contextlib.suppress(SafeclError):  # a run does not end because its progress cannot be shown
            write_json(self.folder / STATUS, {"state": "running", **place, **where})


def work(folder: Path, job: Job) -> Outcome:
    """Run a job in ``folder`` unless another worker does; what is said goes to its log."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK, timeout=LOCK_SECONDS)
    try:
        lock.acquire()
    except Timeout:
        return Outcome("busy")
    with lock, (folder / LOG).open("a", encoding="utf-8", errors="replace", buffering=1) as log:
        with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
            try:
                Status(folder).note("Session 0", 0, 0)
                sentence = attempt(_run, folder, job)
                outcome = Outcome("failed", sentence) if sentence else Outcome("done")
            except (Stopped, KeyboardInterrupt):
                outcome = Outcome("stopped")
            print(outcome.sentence or outcome.state, flush=True)
        with contextlib.suppress(SafeclError):
            write_json(folder / STATUS, asdict(outcome))
    return outcome


def _run(folder: Path, job: Job) -> None:
    import torch

    from safecl.experiments.config import validate
    from safecl.experiments.launch import launch

    torch.set_num_threads(job.threads)
    launch(validate(job.settings), folder, Status(folder), facts={"command": job.command}, given=job.given)


def attempt(run: Callable[..., object], *options: object) -> str:
    """The sentence on why ``run`` failed, empty where it did not; the traceback of a bug is printed."""
    try:
        run(*options)
    except Stopped:
        raise
    except SafeclError as error:
        return str(error)
    except Exception as error:
        traceback.print_exc()
        return f"It ended with {type(error).__name__}: {first_line(error)}; its output says where."
    return ""


def first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "").rstrip(".")


def main() -> None:
    """The job is a line of JSON on stdin, which is closed when the sweep is gone: the run then saves and stops."""
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
