"""How much memory a piece of work needed at its peak, on whatever device it ran."""

import contextlib
import resource
import sys
from pathlib import Path

import torch


def reset_peak(device: torch.device) -> None:
    """Start measuring anew."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with contextlib.suppress(OSError):  # Linux forgets its high-water mark when told "5"; others keep theirs
        Path("/proc/self/clear_refs").write_text("5")


def peak(device: torch.device) -> int:
    """Bytes: of the device's own memory, or of this process where it has none."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
