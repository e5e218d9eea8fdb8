"""The command as a person uses it: run, stop, go on, list, show, compare."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

pytestmark = pytest.mark.usefixtures("undrawn")

TINY = ["backbone=test_vit", "backbone.weights=random", "backbone.image_size=16", "device=cpu"]
SMALL = [
    "stream.classes=4",
    "stream.sessions=2",
    "stream.train=4",
    "stream.test=2",
    "ridge.size=50",
]
FAST = ["train.epochs=1", "train.batch_size=8"]


class Answer(NamedTuple):
    code: int
    out: str
    err: str


Safecl = Callable[..., Answer]


@pytest.fixture
def safecl(
    command: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Safecl:
    """``safecl("runs")``: the command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: Answer(*command(*words))


def test_runs_are_listed_shown_and_compared(safecl: Safecl, tmp_path: Path) -> None:
    for method in ("ranpac", "finetune"):
        folder = f"runs/{method}"
        small = [word for word in SMALL if method == "ranpac" or not word.startswith("ridge.")]
        assert safecl("run", method, *TINY, *small, *FAST, "--folder", folder, "--quiet").code == 0
    made = {path.name for path in (tmp_path / "runs/ranpac").iterdir()}
    assert {"resolved.yaml", "facts.json", "metrics.jsonl", "losses.jsonl", "summary.json"} <= made
    assert {"report.html", "examples", "state"} <= made
    typed = json.loads((tmp_path / "runs/ranpac/facts.json").read_text())["command"]
    assert (
        typed.startswith("safecl run ranpac backbone=test_vit")
        and typed.count("--folder runs/ranpac") == 1
    )
    assert (
        yaml.safe_load((tmp_path / "runs/ranpac/resolved.yaml").read_text())["method"]["ridge"][
            "size"
        ]
        == 50
    )
    (tmp_path / "runs/broken").mkdir()
    (tmp_path / "runs/broken/resolved.yaml").write_text("seed: 1\n")

    listed = safecl("runs")
    assert listed.code == 0 and listed.out.count("finished") == 2 and "not begun" in listed.out
    shown = safecl("show", "runs/ranpac")
    assert (
        shown.code == 0
        and "RanPAC" in shown.out
        and "class-incremental" in shown.out
        and "learnable" in shown.out
    )
    compared = safecl("compare", "runs/ranpac", "runs/finetune")
    assert compared.code == 0 and "Fine-tuning" in compared.out
    assert "method.name" in compared.out and "train.epochs" not in compared.out  # only what differs

    again = safecl("run", "ranpac", *TINY, *SMALL, *FAST, "--folder", "runs/ranpac")
    assert again.code == 0 and "finished already" in again.out
    other = safecl("run", "ranpac", *TINY, *SMALL, "seed=1", "--folder", "runs/ranpac")
    assert other.code == 2 and "other settings" in other.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["runs", "nowhere"], "There is no folder nowhere"),
        (["runs", "."], "There are no runs in"),
        (["show", "nowhere"], "There is no run folder nowhere"),
        (["run", "safe", *TINY, "--track", "wandbb"], "did you mean 'wandb'?"),
        (
            ["run", "safe", *TINY, "train.accumulate=7"],
            "train.accumulate=7 must divide train.batch_size=48",
        ),
    ],
)
def test_mistakes_are_one_sentence(words: list[str], sentence: str, safecl: Safecl) -> None:
    answer = safecl(*words)
    assert answer.code == 2 and sentence in answer.err and answer.err.count("\n") == 1


def test_a_tracker_that_is_not_installed_is_one_sentence(
    safecl: Safecl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accelerate.utils.is_mlflow_available", lambda: False)
    answer = safecl("run", "safe", *TINY, "--track", "mlflow")
    assert answer.code == 2 and "pip install mlflow" in answer.err and answer.err.count("\n") == 1


@pytest.mark.slow
def test_a_signal_stops_a_run_within_seconds_and_the_same_command_goes_on(
    safecl: Safecl, tmp_path: Path
) -> None:
    words = [
        "run",
        "ranpac",
        *TINY,
        *SMALL,
        "train.epochs=40",
        "train.batch_size=4",
        "train.save_seconds=0.01",
    ]
    command = [*words, "--folder", str(tmp_path / "run")]
    process = subprocess.Popen(
        [sys.executable, "-m", "safecl", *command], stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    place = tmp_path / "run" / "state" / "fit_1_ranpac.safetensors"
    while not place.exists() and process.poll() is None:
        time.sleep(0.02)
    second = safecl(*command)  # while the first one is at work
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    # torch's own
    said = [line for line in err.decode().splitlines() if not line.startswith("Error in cpuinfo: ")]
    assert len(said) == 1 and "the same command resumes from here" in said[0]
    assert second.code == 2 and "Another run is using" in second.err
    assert not (tmp_path / "run" / "summary.json").exists()
    assert "unfinished" in safecl("runs", str(tmp_path)).out
    rest = safecl(*command)
    assert rest.code == 0 and "Resuming in session 1 of 2." in rest.out
    assert "test pictures of 4 classes at the end" in rest.out
