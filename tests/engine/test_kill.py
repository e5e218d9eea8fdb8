"""SIGKILL at random instants: a real signal, a real process, a real folder."""

import json
import random
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from safecl.engine.checkpoint import load_state


def contents(folder: Path) -> tuple[list[Any], list[Any], Any, dict[str, torch.Tensor]]:
    """Metrics without clocks, losses, summary without clocks, and the last state."""
    metrics, losses = (
        [json.loads(line) for line in (folder / name).read_text().splitlines()]
        for name in ("metrics.jsonl", "losses.jsonl")
    )
    clocks = ("seconds", "phases", "images_per_second", "peak_memory", "check")
    metrics = [{key: value for key, value in line.items() if key not in clocks} for line in metrics]
    summary = json.loads((folder / "summary.json").read_text())
    summary.pop("seconds")
    state, _ = load_state(sorted((folder / "state").glob("session_*.safetensors"))[-1])
    return metrics, losses, summary, state


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kills", [1, pytest.param(25, marks=pytest.mark.slow)])
def test_a_run_killed_at_random_instants_ends_the_same(
    kills: int, server: Any, tmp_path: Path
) -> None:
    code, length = server.run(str(tmp_path / "straight"))
    assert code == 0
    metrics, losses, summary, state = contents(tmp_path / "straight")
    chance = random.Random(kills)
    killed = 0
    number = 0
    while killed < kills:
        number += 1
        assert number < 3 * kills + 3, "most runs ended before they were killed"
        folder = tmp_path / str(number)
        code, _ = server.run(str(folder), kill_after=chance.uniform(0, 0.95 * length))
        if code == 0:
            continue  # it was faster than the clock
        assert code == -signal.SIGKILL
        killed += 1
        assert server.run(str(folder))[0] == 0
        again = contents(folder)
        assert again[:3] == (metrics, losses, summary), number
        assert again[3].keys() == state.keys()
        assert all(torch.equal(again[3][name], value) for name, value in state.items()), number
        assert not list((folder / "state").glob("fit_*")) and not list(
            (folder / "state").glob(".*.part")
        )
