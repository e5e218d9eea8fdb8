"""How much memory is free, on the host and within the limits of a container."""

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from safecl import ram
from safecl.ram import free_memory, free_on_host

GB = 1 << 30


def system(root: Path, files: dict[str, str]) -> Path:
    """A tree with the files of /proc and /sys that are read."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """One with 8 GB available."""
    monkeypatch.setattr(
        psutil, "virtual_memory", lambda: SimpleNamespace(total=16 * GB, free=0, available=8 * GB)
    )


def test_without_limits_the_host_has_what_the_system_says_is_available(tmp_path: Path) -> None:
    assert free_on_host(tmp_path) == 8 * GB


def test_a_limit_of_the_container_or_of_a_group_around_it_counts(tmp_path: Path) -> None:
    group = "sys/fs/cgroup"
    files = {
        "proc/self/cgroup": "0::/jobs/mine\n",
        f"{group}/jobs/mine/memory.max": "max\n",
        f"{group}/jobs/mine/memory.current": f"{1 * GB}\n",
        f"{group}/jobs/memory.max": f"{4 * GB}\n",
        f"{group}/jobs/memory.current": f"{3 * GB}\n",
        # cached files, which the kernel gives up
        f"{group}/jobs/memory.stat": (f"anon 5\ninactive_file {GB}\n"),
    }
    assert free_on_host(system(tmp_path, files)) == 2 * GB


def test_the_older_kind_of_group_counts_even_where_its_path_is_that_of_the_host(
    tmp_path: Path,
) -> None:
    group = "sys/fs/cgroup/memory"
    files = {
        "proc/self/cgroup": "5:cpu,memory:/not/to/be/seen\n4:pids:/\n",
        f"{group}/memory.limit_in_bytes": f"{2 * GB}\n",
        f"{group}/memory.usage_in_bytes": f"{GB}\n",
        f"{group}/memory.stat": f"total_inactive_file {GB // 2}\n",
    }
    assert free_on_host(system(tmp_path, files)) == 3 * GB // 2


def test_a_group_over_its_limit_has_nothing_left(tmp_path: Path) -> None:
    group = "sys/fs/cgroup"
    files = {
        "proc/self/cgroup": "0::/\n",
        f"{group}/memory.max": "5\n",
        f"{group}/memory.current": "7\n",
    }
    assert free_on_host(system(tmp_path, files)) == 0


@pytest.mark.parametrize("kind", ["cpu", "mps"])
def test_a_device_without_memory_of_its_own_has_that_of_the_host(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ram, "free_on_host", lambda: 123)
    assert free_memory(torch.device(kind)) == 123


def test_a_gpu_has_what_is_free_and_what_torch_holds_without_using_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (100, 500))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 60)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 20)
    assert free_memory(torch.device("cuda")) == 140
