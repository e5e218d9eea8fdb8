"""A worker of a sweep: how it ends, what it notes, and what it does when the sweep is gone."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from safecl.atomic import read_json
from safecl.engine.folder import claimed
from safecl.experiments import launch as launching
from safecl.experiments.config import load
from safecl.experiments.sweep.sweep import read_place
from safecl.experiments.sweep.worker import LOG, STATUS, Job, work

WORDS = ["stream.classes=4", "stream.sessions=2", "stream.train=2", "stream.test=1", "device=cpu"]


def job(*words: str) -> Job:
    return Job(load("simplecil", [*WORDS, *words]).model_dump(mode="json"), "safecl sweep x", 1)


def test_a_worker_runs_its_job_into_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert work(tmp_path / "run", job()).state == "done"
    assert read_json(tmp_path / "run" / "summary.json") and read_json(
        tmp_path / "run" / STATUS
    ) == {
        "state": "done",
        "sentence": "",
    }
    assert (
        "Session 2 of 2" in (tmp_path / "run" / LOG).read_text() and capsys.readouterr().out == ""
    )
    assert (read_json(tmp_path / "run" / "facts.json") or {})["command"] == "safecl sweep x"


def test_a_run_that_another_process_has_is_left_alone(tmp_path: Path) -> None:
    with claimed(tmp_path):
        assert work(tmp_path, job()).state == "busy"
    assert not (tmp_path / "summary.json").exists()


def test_a_worker_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = work(tmp_path / "a", job(f"backbone.weights={tmp_path}/none.npz"))
    assert outcome.state == "failed" and "none.npz" in outcome.sentence
    assert read_json(tmp_path / "a" / STATUS) == {"state": "failed", "sentence": outcome.sentence}

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug\nof ours")

    monkeypatch.setattr(launching, "launch", broken)
    outcome = work(tmp_path / "b", job())
    assert outcome.state == "failed" and outcome.sentence.startswith(
        "It ended with ZeroDivisionError: a bug; "
    )
    assert "Traceback" in (tmp_path / "b" / LOG).read_text()


def test_a_worker_ends_when_the_sweep_is_gone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "safecl.experiments.sweep.worker", str(tmp_path / "run")]
    endless = job("stream.train=200", "stream.classes=100")
    # closes stdin
    ran = subprocess.run(command, input=json.dumps(asdict(endless)) + "\n", text=True, timeout=60)
    assert ran.returncode in (-15, 0) and not (tmp_path / "run" / "summary.json").exists()


def test_a_place_is_read_from_what_the_run_has_written(tmp_path: Path) -> None:
    assert read_place(tmp_path) == "starting"
    (tmp_path / "facts.json").write_text(json.dumps({"stream": {"sessions": [{}, {}, {}, {}]}}))
    assert read_place(tmp_path) == "session 1 of 4"
    (tmp_path / "metrics.jsonl").write_text("{}\n{}\n")
    assert read_place(tmp_path) == "session 3 of 4"
    (tmp_path / "metrics.jsonl").write_text("{}\n" * 4)
    assert read_place(tmp_path) == "session 4 of 4"
