"""One run of a sweep, in a process of its own: ``python -m safecl.experiments.sweep.worker
FOLDER``.
"""

import contextlib
import json
import os
import signal
import sys
import threading
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from safecl.atomic import write_json
from safecl.engine.progress import Plain
from safecl.errors import Busy, SafeclError, Stopped

State: TypeAlias = Literal["done", "failed", "stopped", "busy", "died"]
STATUS = "status.json"
LOG = "worker.log"  # in the run's folder


@dataclass(frozen=True)
class Job:
    """What a worker needs: resolved settings, the sweep's command, and its threads."""

    settings: dict[str, Any]
    command: str
    threads: int


@dataclass(frozen=True)
class Outcome:
    """How a worker ended. ``busy``: another process works on the run; ``died``: ended by a
    signal.
    """

    state: State
    sentence: str = ""


def work(folder: Path, job: Job) -> Outcome:
    """Run a job in ``folder`` unless another process does; what is said goes to its log."""
    folder.mkdir(parents=True, exist_ok=True)
    _note(folder, {"state": "running", "process": os.getpid()})
    with (
        (folder / LOG).open("a", encoding="utf-8", errors="replace", buffering=1) as log,
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        outcome = _attempt(folder, job)
        print(outcome.sentence or outcome.state, flush=True)
    _note(folder, asdict(outcome))
    return outcome


def _note(folder: Path, status: dict[str, Any]) -> None:
    with contextlib.suppress(SafeclError):  # a run does not end because its state cannot be shown
        write_json(folder / STATUS, status)


def _attempt(folder: Path, job: Job) -> Outcome:
    try:
        import torch

        from safecl.experiments.config import validate
        from safecl.experiments.launch import launch

        torch.set_num_threads(job.threads)
        launch(validate(job.settings), folder, Plain(), command=job.command)
    except Busy:
        return Outcome("busy")
    except (Stopped, KeyboardInterrupt):
        return Outcome("stopped")
    except SafeclError as error:
        return Outcome("failed", str(error))
    except Exception as error:
        traceback.print_exc()
        said = f"It ended with {type(error).__name__}: {first_line(error)}"
        return Outcome("failed", f"{said}; {folder / LOG} says where.")
    return Outcome("done")


def first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "").rstrip(".")


def main() -> None:
    """The job is a line of JSON on stdin, which is closed when the sweep is gone: the run then
    saves and stops.
    """
    job = Job(**json.loads(sys.stdin.readline()))
    threading.Thread(target=_stop_without_sweep, daemon=True).start()
    work(Path(sys.argv[1]), job)
    sys.stdout.flush()
    os._exit(0)  # the thread still reads


def _stop_without_sweep() -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
