"""Processors, and working memory on the host or a device: what is free, what a piece of work took
or may take.
"""

import contextlib
import math
import os
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from safecl.errors import SafeclError


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Bounded(TorchDispatchMode):
    """Raises ``error`` before tensors of more than ``most`` numbers in all are made; copies do
    not count.
    """

    def __init__(self, most: int, error: SafeclError) -> None:
        super().__init__()
        self.left = most
        self.error = error

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if names := _names_where_sized(func):
            self.left -= math.prod(dict(zip(names, args, strict=False), **kwargs or {})["size"])
            if self.left < 0:
                raise self.error
        return func(*args, **kwargs or {})


@cache
def _names_where_sized(func: Any) -> tuple[str, ...]:
    """The arguments of an operator that makes a tensor of a given ``size``; none of any other."""
    names = tuple(argument.name for argument in func._schema.arguments)
    return (
        names
        if "size" in names and not any(made.alias_info for made in func._schema.returns)
        else ()
    )


def free_memory(device: torch.device) -> int:
    """Bytes that can still be allocated on ``device``; MPS uses the memory of the host."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + cached
    return free_on_host()


def free_on_host(root: Path = Path("/")) -> int:
    """Bytes available to this process: the least of what the machine has and what its control
    groups allow.
    """
    least = int(psutil.virtual_memory().available)
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            least = _left_in_groups(least, root / "sys/fs/cgroup", *line.split(":", 2)[1:])
    return max(least, 0)


def _left_in_groups(least: int, top: Path, controllers: str, path: str) -> int:
    """Bytes that a control group (a container, a batch job) and those around it have left, if less
    than ``least``.
    """
    if not controllers:  # version 2
        limit = "memory.max"
        used = "memory.current"
        cached = "inactive_file"
    elif "memory" in controllers.split(","):
        top = top / "memory"
        limit = "memory.limit_in_bytes"
        used = "memory.usage_in_bytes"
        cached = "total_inactive_file"
    else:
        return least
    for group in (top / path.lstrip("/"), *(top / path.lstrip("/")).parents)[
        : len(Path(path).parts)
    ]:
        # no such group in this container, or no limit
        with contextlib.suppress(OSError, ValueError):
            left = int((group / limit).read_text()) - int((group / used).read_text())
            if left < least:
                most = least
                least = left
                # cached files can be given up
                least = min(most, left + _value(group / "memory.stat", cached))
    return least


def _value(path: Path, name: str) -> int:
    """The number after ``name`` in a file of lines with a name and a number."""
    for line in path.read_text().splitlines():
        if line.split()[:1] == [name]:
            return int(line.split()[1])
    raise ValueError(f"{path} has no {name}")


def reset_peak(device: torch.device) -> None:
    """Start measuring anew."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    # writing 5 resets the high-water mark of Linux; other systems have no such file
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak(device: torch.device) -> int:
    """Bytes: of the device's own memory, or of this process where it has none (what it uses now,
    outside Linux).
    """
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    with contextlib.suppress(OSError, ValueError):
        return 1024 * _value(Path("/proc/self/status"), "VmHWM:")
    return int(psutil.Process().memory_info().rss)
