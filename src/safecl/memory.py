"""How much memory is free, so that too large a request is refused before the system ends the process."""

import contextlib
from pathlib import Path

import psutil
import torch


def free_memory(device: torch.device) -> int:
    """Bytes that can still be allocated on ``device``; MPS uses the memory of the host."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + cached
    return free_on_host()


def free_on_host(root: Path = Path("/")) -> int:
    """Bytes available to this process: the least of what the machine has and what its control groups allow."""
    limits = _left_in_groups(root)
    try:
        limits.append(1024 * _value(root / "proc/meminfo", "MemAvailable:"))
    except (OSError, ValueError):  # not Linux
        limits.append(int(psutil.virtual_memory().available))
    return max(min(limits), 0)


def _left_in_groups(root: Path) -> list[int]:
    """What the control groups (containers, batch jobs) of this process, and those around them, have left."""
    left = []
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            parts = Path(path.lstrip("/")).parts
            groups = [Path("sys/fs/cgroup", "memory" if controllers else "", *parts[:n]) for n in range(len(parts) + 1)]
            if not controllers:  # version 2
                names = "memory.max", "memory.current", "inactive_file"
            elif "memory" in controllers.split(","):
                names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
            else:
                continue
            for group in groups:
                with contextlib.suppress(OSError, ValueError):  # no such group in this container, or no limit
                    left.append(_left(root / group, *names))
    return left


def _left(group: Path, limit: str, used: str, cached: str) -> int:
    """Bytes that one control group still allows; files it has cached can be given up."""
    left = int((group / limit).read_text()) - int((group / used).read_text())
    with contextlib.suppress(OSError, ValueError):
        left += _value(group / "memory.stat", cached)
    return left


def _value(path: Path, name: str) -> int:
    """The number after ``name`` in a file with one name and one number a line."""
    for line in path.read_text().splitlines():
        if line.startswith(name + " "):
            return int(line.split()[1])
    raise ValueError(f"{path} has no {name}")
