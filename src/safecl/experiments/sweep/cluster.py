"""The runs of a sweep as tasks of a Ray cluster. Ray is an extra: it is imported when it is
needed.
"""

import _thread
import contextlib
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safecl.errors import SafeclError
from safecl.experiments.sweep.plan import Cell
from safecl.experiments.sweep.worker import STATUS, Job, Outcome, first_line, work
from safecl.process import own_job

STOP = "stop"  # in a run's folder: asks its worker to save and stop
RETRIES = (
    3  # of a run whose worker or node is lost; Ray starts it again, and it resumes from its folder
)


class OnRay:
    """A task per run of the cluster at RAY_ADDRESS, or of one that is started here.

    The folders must be on storage that all its machines share.
    """

    def __init__(self, cells: Sequence[Cell], jobs: int | None = None, gpus: float = 1.0) -> None:
        try:
            import ray
        except ImportError as error:
            raise SafeclError("sweep.ray.missing") from error
        self.ray: Any = ray
        address = os.environ.get("RAY_ADDRESS", "local")
        try:
            more = {"include_dashboard": False} if address == "local" else {}
            options = {"log_to_driver": False, "logging_level": "ERROR", "job_config": own_job(ray)}
            self.ray.init(address=address, **options, **more)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise SafeclError(
                "sweep.ray.unreachable", address=address, reason=first_line(error)
            ) from error
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        wanted = any(cell.settings.device in ("auto", "cuda") for cell in cells)
        share = gpus if wanted and any(node.get("GPU", 0) for node in nodes) else 0.0
        self.jobs, self.threads = share_out(nodes, min(jobs or len(cells), len(cells)), share)
        if not self.jobs:
            self.ray.shutdown()
            raise SafeclError("sweep.ray.no-machine", gpu=f" and {share:g} GPU" * bool(share))
        # One task per process, so that what one run holds of a device's memory is free for the
        # next.
        options = {
            "num_cpus": self.threads,
            "num_gpus": share,
            "max_retries": RETRIES,
            "max_calls": 1,
        }
        self.task = self.ray.remote(**options)(_task)
        self.running: dict[Any, tuple[Cell, Path]] = {}

    def room(self) -> bool:
        return len(self.running) < self.jobs

    def start(self, cell: Cell, folder: Path, job: Job) -> None:
        for left in (STOP, STATUS):  # by an earlier sweep
            (folder / left).unlink(missing_ok=True)
        self.running[self.task.remote(folder.resolve(), job)] = cell, folder

    def finished(self) -> list[tuple[Cell, Outcome]]:
        if not self.running:
            return []
        ready, _ = self.ray.wait(list(self.running), num_returns=len(self.running), timeout=0)
        return [(self.running.pop(task)[0], self._outcome(task)) for task in ready]

    def stop(self, at_once: bool = False) -> None:
        """A file asks a run at work, once, to save and stop; tasks that have not begun, or all, are
        cancelled.
        """
        for task, (_, folder) in self.running.items():
            with contextlib.suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                (folder / STOP).touch()
            if at_once or not (folder / STATUS).exists():
                self.ray.cancel(task, force=at_once)

    def close(self) -> None:
        self.stop(at_once=True)
        self.ray.shutdown()

    def _outcome(self, task: Any) -> Outcome:
        errors = self.ray.exceptions
        try:
            found: Outcome = self.ray.get(task)
            return found
        except errors.RayError as error:
            if isinstance(error, errors.TaskCancelledError) or "KeyboardInterrupt" in str(error):
                return Outcome("stopped")
            return Outcome(
                "failed", f"Ray lost its worker {RETRIES + 1} times ({first_line(error)})."
            )


def share_out(nodes: Sequence[Mapping[str, float]], jobs: int, gpus: float) -> tuple[int, int]:
    """(runs at once, threads of each): as many threads as leave room for ``jobs`` runs, each on one
    machine.
    """

    def room(threads: int) -> int:
        by_cores = [int(node.get("CPU", 0) // threads) for node in nodes]
        by_gpus = [int(node.get("GPU", 0) / gpus + 1e-9) if gpus else jobs for node in nodes]
        return min(sum(map(min, by_cores, by_gpus)), jobs)

    at_once = room(1)
    most = max((int(node.get("CPU", 0)) for node in nodes), default=1)
    return at_once, max(
        (threads for threads in range(1, most + 1) if room(threads) == at_once), default=1
    )


def _task(folder: Path, job: Job) -> Outcome:
    over = threading.Event()
    threading.Thread(target=_watch, args=(folder / STOP, over), daemon=True).start()
    try:
        return work(folder, job)
    finally:
        over.set()


def _watch(file: Path, over: threading.Event) -> None:
    while not over.wait(0.5):
        if file.exists():
            _thread.interrupt_main(signal.SIGINT)  # Ray blocks the signal itself
            return
