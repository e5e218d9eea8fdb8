"""Where the numbers of a run come from: versions, hardware, revision, sizes."""

import contextlib
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import torch

import safecl
from safecl.engine.metrics import METRICS
from safecl.engine.processes import Processes
from safecl.lines import counted
from safecl.methods.catalog import method_settings
from safecl.methods.method import Method
from safecl.pet.settings import PETS, Pet
from safecl.streams.datasets import DATASETS
from safecl.streams.stream import Stream

LIBRARIES = ("torch", "torchvision", "timm", "accelerate", "numpy", "safetensors")


def describe(processes: Processes, method: Method, stream: Stream, seed: int) -> dict[str, Any]:
    """What is known before the first session; the report draws its page from it."""
    sessions = [{"name": name, "classes": list(classes)} for name, classes in stream.sessions]
    return {
        "version": safecl.__version__,
        "method": method.settings.name,
        "title": method.settings.title,
        "main": method.outputs[-1],
        "outputs": list(method.outputs),
        "stream": {
            "name": stream.name,
            "protocol": stream.protocol,
            "split": stream.split,
            "sessions": sessions,
        },
        "backbone": {
            "name": method.backbone.name,
            "width": method.backbone.width,
            "size": method.backbone.size,
        },
        "seed": seed,
        "device": str(processes.device),
        "processes": processes.count,
        "hardware": hardware(processes.device),
        "libraries": {
            "python": platform.python_version(),
            **{name: version(name) for name in LIBRARIES},
        },
        "packages": packages(method, stream),
        "git": revision(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def packages(method: Method, stream: Stream) -> list[str]:
    """The packages, besides ours, that bring the method, its PET, the data set or a metric."""
    pet = getattr(method.settings, "pet", None)
    brought = {METRICS.package(name) for name in METRICS}
    brought |= {method_settings().package(method.settings.name), DATASETS.package(stream.name)}
    brought |= {PETS.package(pet.kind)} if isinstance(pet, Pet) else set()
    return sorted(name for name in brought if name is not None)


def sizes(method: Method) -> dict[str, int]:
    """Numbers that are trained, and numbers that are kept, each counted once."""
    kept = {tensor.data_ptr(): tensor.numel() for tensor in method.state_dict().values()}
    return {"learnable": footprint(method)["learnable"], "stored": sum(kept.values())}


def footprint(method: Method) -> dict[str, int]:
    """Numbers that are trained, and bytes kept between sessions, each counted once."""
    kept = {tensor.data_ptr(): tensor.nbytes for tensor in method.state_dict().values()}
    learnable = sum(parameter.numel() for parameter in method.parameters())
    return {"learnable": learnable, "bytes_kept": sum(kept.values())}


def hardware(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cores = os.cpu_count() or 1
    threads = torch.get_num_threads()
    return f"{platform.machine()}, {counted(cores, 'core')}, {counted(threads, 'thread')}"


def revision() -> str | None:
    """The git revision of the working folder, if it is one; with a + where files have been changed
    since.
    """
    # the settings of a folder can name programs that git would run: a monitor of files, and hooks
    # where it writes its index
    git = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        head, changes = (
            subprocess.run(
                [*git, *words], capture_output=True, text=True, timeout=5, check=True
            ).stdout.strip()
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
        return head + ("+" if changes else "")
    return None
