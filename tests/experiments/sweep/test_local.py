"""How many runs go on at once on this machine."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from safecl.experiments.config import load
from safecl.experiments.sweep import local as sweep_local
from safecl.experiments.sweep.local import GIGABYTE, Local, ram_estimate
from safecl.experiments.sweep.plan import Cell


def cells(count: int, *words: str) -> list[Cell]:
    return [Cell({"seed": seed}, load("safe", [f"seed={seed}", *words])) for seed in range(count)]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``machine(cores, gigabytes, gpus)``; workers that only pretend."""
    started: list[dict[str, str]] = []

    class Process:
        def __init__(self, command: list[str], env: dict[str, str], **_: Any) -> None:
            started.append(env)
            self.pid = 0
            self.stdin = SimpleNamespace(write=lambda data: None, flush=lambda: None)

    def make(cores: int, gigabytes: float = 1000, gpus: int = 0) -> list[dict[str, str]]:
        monkeypatch.setattr(sweep_local, "cores", lambda: cores)
        monkeypatch.setattr(sweep_local, "visible_gpus", lambda: [str(i) for i in range(gpus)])
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
        monkeypatch.setattr(sweep_local, "free_on_host", lambda: int(GIGABYTE * gigabytes))
        monkeypatch.setattr(sweep_local.subprocess, "Popen", Process)
        return started

    return make


def fill(local: Local, waiting: list[Cell], folder: Path) -> int:
    """Start as many as there is room for."""
    job = sweep_local.Job({}, "", local.threads)
    for number, cell in enumerate(waiting):
        if not local.room():
            return number
        local.start(cell, folder, job)
    return len(waiting)


def test_as_many_as_cores_with_their_share_of_threads(machine: Any, tmp_path: Path) -> None:
    started = machine(cores=4)
    assert fill(Local(cells(9)), cells(9), tmp_path) == 4
    assert {env["OMP_NUM_THREADS"] for env in started} == {"1"} and not any(
        "CUDA_VISIBLE" in k for k in started[0]
    )
    assert Local(cells(2)).jobs == 2 and Local(cells(2)).threads == 2
    assert Local(cells(9), jobs=1).jobs == 1 and Local(cells(9), jobs=1).threads == 4


def test_as_many_as_memory_holds_unless_one_says_how_many(machine: Any) -> None:
    few = cells(9, "ridge.size=2000")
    machine(cores=8, gigabytes=2.5 * ram_estimate(few[0].settings) / GIGABYTE)
    assert Local(few).jobs == 2 and Local(few, jobs=5).jobs == 5


def test_one_run_starts_however_little_memory_there_is(machine: Any, tmp_path: Path) -> None:
    machine(cores=8, gigabytes=0)
    assert fill(Local(cells(3)), cells(3), tmp_path) == 1


def test_a_larger_head_or_network_is_expected_to_need_more() -> None:
    small, head, network = (
        ram_estimate(load("safe", words))
        for words in (
            ["ridge.size=50"],
            ["ridge.size=20000"],
            ["ridge.size=50", "backbone=vit_base_patch16_224.augreg_in21k"],
        )
    )
    assert small < head and small < network


def test_runs_share_gpus_evenly(machine: Any, tmp_path: Path) -> None:
    started = machine(cores=16, gpus=2)
    assert fill(Local(cells(9), gpus=0.5), cells(9), tmp_path) == 4
    assert [env["CUDA_VISIBLE_DEVICES"] for env in started] == ["0", "1", "0", "1"]
    assert Local(cells(9)).jobs == 2 and Local(cells(9, "device=cpu")).jobs == 9
