"""The runs of a sweep as processes of this machine, as many at once as its cores, RAM and GPUs
carry.
"""

import contextlib
import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from safecl.atomic import read_json
from safecl.backbone.settings import EMBEDDED
from safecl.experiments.config import RunSettings
from safecl.experiments.sweep.plan import Cell
from safecl.experiments.sweep.worker import LOG, STATUS, Job, Outcome
from safecl.process import own_python
from safecl.ram import cores, free_on_host

GIGABYTE = 10**9


@dataclass
class _Worker:
    cell: Cell
    folder: Path
    process: "subprocess.Popen[bytes]"
    gpu: str | None


class Local:
    """Starts a process per run. ``jobs``: at most so many; ``gpus``: the part of a GPU that a run
    gets.
    """

    def __init__(self, cells: Sequence[Cell], jobs: int | None = None, gpus: float = 1.0) -> None:
        devices = {cell.settings.device for cell in cells}
        self.gpus = visible_gpus() if devices & {"auto", "cuda"} else []
        at_once = int(len(self.gpus) / gpus + 1e-9) if self.gpus else cores()
        at_once = min(at_once, free_on_host() // max(ram_estimate(cell.settings) for cell in cells))
        # the GPU of an Apple machine
        one = bool(devices & {"auto", "mps"}) and torch.backends.mps.is_available()
        self.jobs = max(1, min(jobs or (1 if one else at_once), len(cells)))
        self.threads = max(1, cores() // self.jobs)
        self.workers: list[_Worker] = []

    def room(self) -> bool:
        """Whether one more run fits beside those at work."""
        return len(self.workers) < self.jobs

    def start(self, cell: Cell, folder: Path, job: Job) -> None:
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(job.threads),
            "MKL_NUM_THREADS": str(job.threads),
        }
        taken = Counter(worker.gpu for worker in self.workers)
        gpu = min(self.gpus, key=lambda gpu: taken[gpu], default=None)
        if gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = gpu
        folder.mkdir(parents=True, exist_ok=True)
        command = own_python("safecl.experiments.sweep.worker", str(folder))
        with (folder / LOG).open("ab") as log:
            # A session of its own: Ctrl-C on the terminal reaches the sweep alone, which then stops
            # its workers.
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died at once: its exit code says so
            process.stdin.write(json.dumps(asdict(job)).encode() + b"\n")
            process.stdin.flush()
        self.workers.append(_Worker(cell, folder, process, gpu))

    def finished(self) -> list[tuple[Cell, Outcome]]:
        """The runs that ended since the last call."""
        ended = [worker for worker in self.workers if worker.process.poll() is not None]
        self.workers = [worker for worker in self.workers if worker not in ended]
        for worker in ended:
            worker.process.communicate()  # closes its stdin
        return [(worker.cell, _outcome(worker)) for worker in ended]

    def stop(self, at_once: bool = False) -> None:
        """Ask every run to save and stop; or end it where it is."""
        for worker in self.workers:
            worker.process.kill() if at_once else worker.process.terminate()

    def close(self) -> None:
        self.stop(at_once=True)
        for worker in self.workers:
            worker.process.wait()


def visible_gpus() -> list[str]:
    """NVIDIA's GPUs as CUDA_VISIBLE_DEVICES names them."""
    count = torch.cuda.device_count()
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return (
        [name.strip() for name in named.split(",")][:count]
        if named
        else [str(i) for i in range(count)]
    )


def ram_estimate(settings: RunSettings) -> int:
    """Bytes on the host, about: Python with torch, the network, the matrices of a ridge head."""
    network = 0 if settings.backbone.name == EMBEDDED else 2 * GIGABYTE
    size = getattr(getattr(settings.method, "ridge", None), "size", 0)
    # statistics, weights and what a solve needs beside them
    return int(0.7 * GIGABYTE + network + 6 * 4 * size**2)


def _outcome(worker: _Worker) -> Outcome:
    code = worker.process.returncode
    if code < 0:
        names = {one.value: one.name for one in signal.Signals}
        return Outcome("died", f"Its process was ended by {names.get(-code, f'signal {-code}')}")
    said = read_json(worker.folder / STATUS)
    if code or said is None or said["state"] == "running":
        return Outcome(
            "failed", f"Its process ended with code {code}; {worker.folder / LOG} may say why."
        )
    return Outcome(**said)
