"""How much memory a piece of work needed at its peak, on whatever device it ran."""

import contextlib
from pathlib import Path

import psutil
import torch


def reset_peak(device: torch.device) -> None:
    """Start measuring anew."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with contextlib.suppress(OSError):  # writing 5 resets the high-water mark of Linux; other systems have no such file
        Path("/proc/self/clear_refs").write_text("5")


def peak(device: torch.device) -> int:
    """Bytes: of the device's own memory, or of this process where it has none (what it uses now, outside Linux)."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    return int(psutil.Process().memory_info().rss)
