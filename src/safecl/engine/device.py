"""Which device to compute on, in which precision, and in how many processes."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from safecl.errors import SafeclError, unknown

if TYPE_CHECKING:
    from accelerate import Accelerator


TRACKERS = ("tensorboard", "wandb", "mlflow")
_process = os.getpid()  # the one that has torch's threads


def choose_device(device: str = "auto") -> torch.device:
    """``auto`` takes the best device available; a missing one is refused."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(device, True):
        raise SafeclError("device.missing", device=device)
    if device != "auto":
        return torch.device(device)
    return torch.device(next((name for name, found in there.items() if found), "cpu"))


def check_fork(device: str) -> None:
    """In a forked process compute in one thread: others would be waited for forever, as torch's are
    not copied.

    oneDNN keeps, on ARM, the number of threads of the parent whatever torch is told, so the child
    does without it.
    """
    global _process
    if device != "cpu" and torch.cuda._is_in_bad_fork():
        raise SafeclError("device.forked")
    if os.getpid() != _process:
        torch.set_num_threads(1)
        torch._C._set_mkldnn_enabled(False)
        _process = os.getpid()


def make_accelerator(
    device: str = "auto", trackers: Sequence[str] = (), folder: Path | None = None
) -> "Accelerator":
    """Accelerate's view of the machine: ``auto`` takes the best device there is."""
    from accelerate import Accelerator, utils  # slow to import, and predictions do without it
    from accelerate.state import AcceleratorState, PartialState

    for name in trackers:
        if name not in TRACKERS:
            raise unknown("tracker", name, TRACKERS)
        if not getattr(utils, f"is_{name}_available")():
            raise SafeclError("tracker.not-installed", name=name)
    found = choose_device(device)
    logs = None if folder is None or not trackers else folder / "trackers"
    # accelerate keeps the first device of a process for good, and answers another one with a bare
    # ValueError.
    state = PartialState._shared_state
    alone = state and state.get("num_processes", 1) == 1
    if alone and (found.type == "cpu") != (torch.device(state["device"]).type == "cpu"):
        AcceleratorState._reset_state(reset_partial_state=True)
    return Accelerator(cpu=device == "cpu", log_with=list(trackers) or None, project_dir=logs)


def choose_precision(precision: str, device: torch.device) -> torch.dtype:
    """``auto``: bf16 where the hardware has it."""
    has = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if precision == "bf16" or (precision == "auto" and has) else torch.float32
