"""``safecl sweep``: what it lists, prints and refuses."""

import re
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from safecl.cli import sweep as command
from safecl.cli.sweep import print_results
from safecl.cli.sweep import sweep as sweep_command
from safecl.experiments.sweep import sweep
from safecl.experiments.sweep.sweep import SweepResult
from safecl.report.table import Cell, make_table
from tests.conftest import raises

LEADS = [
    "Method",
    "PET",
    "Runs",
    "Final accuracy",
    "Average accuracy",
    "Forgetting",
    "Learnable",
    "Stored",
    "Time",
]
ROWS = [
    [
        "SAFE",
        "vpt_deep",
        "3",
        "71.2\u00a0±\u00a02.0",
        "77.8\u00a0±\u00a01.1",
        "6.1\u00a0±\u00a00.4",
        "95\u202f043",
        "33.7\u00a0MB",
        "1\u00a0min 7\u00a0s",
    ]
]
TABLE = make_table(
    "t",
    LEADS,
    [[Cell(text, best=i == 3) for i, text in enumerate(row)] for row in ROWS],
    words=LEADS[:2],
)


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "mine.yaml").write_text("grid: {preset: [safe, simplecil], seed: [0, 1]}\n")
    return str(tmp_path / "mine.yaml")


def test_an_objective_without_held_out_pictures_is_one_sentence_and_starts_nothing(
    file: str, tmp_path: Path
) -> None:
    with raises("sweep.plan.wrong", lines=re.compile("needs held-out training pictures")):
        sweep_command(file, [], folder=tmp_path / "all", objective="validation.final")
    assert not (tmp_path / "all").exists()


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_number_is_broken_at_any_width(width: int) -> None:
    shown = StringIO()
    print_results(TABLE, None, Console(file=shown, width=width))
    assert "71.2 ± 2.0*" in shown.getvalue() and "77.8 ± 1.1" in shown.getvalue()
    assert all(len(line) <= width for line in shown.getvalue().splitlines())


def test_a_failed_run_is_told_below_the_table_and_by_the_exit_code(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, Any] = {}

    def pretend(plan: Any, folder: Path, **options: Any) -> SweepResult:
        asked.update(options)
        failed = {} if options["jobs"] == 2 else {"preset=safe seed=1": "No picture."}
        return SweepResult(TABLE, failed, [folder / "mine.csv"])

    monkeypatch.setattr(sweep, "run_sweep", pretend)
    monkeypatch.setattr(command, "make_console", lambda: Console(width=200))
    assert sweep_command(file, ["seed=1"], folder=tmp_path / "all") == 1
    shown = capsys.readouterr().out
    assert "preset=safe seed=1 failed: No picture." in shown and "mine.csv" in shown
    assert asked["command"] == f"safecl sweep {file} seed=1 --folder {tmp_path / 'all'}"
    assert sweep_command(file, [], jobs=2) == 0


def test_the_command_answers_what_is_wrong_in_one_line(file: str, tmp_path: Path) -> None:
    words = ["sweep", file, "--objective", "forgetting"]
    ran = subprocess.run(
        [sys.executable, "-m", "safecl", *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
    )
    assert (
        ran.returncode == 2
        and ran.stdout == ""
        and "'forgetting' is not one of 'validation.final'" in ran.stderr
    )
    assert ran.stderr.count("\n") == 1
