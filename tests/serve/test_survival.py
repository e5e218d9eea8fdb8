"""Killed at any instant, the service goes on where it was: no job is lost, and none is done twice."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from safecl.classifier.store import ModelFile
from safecl.errors import SafeclError
from safecl.outputs import locked
from safecl.serve.jobs import Jobs

from .conftest import Service

Start = Callable[..., Any]


@pytest.fixture
def path(tmp_path: Path, model_file: Path) -> Path:
    found = tmp_path / "m.safecl"
    found.write_bytes(model_file.read_bytes())
    return found


def steps(path: Path) -> list[str]:
    return [entry["what"] for entry in ModelFile(path).header["history"]]


def test_a_process_that_is_killed_at_a_job_does_it_in_a_second_one(service: Service) -> None:
    before, past = service.version, steps(service.path)
    job = service.client.post("/api/models/m/learn", json=service.taught("uv", 8, seed=4)).json()["job"]["id"]
    while not service.client.get(f"/api/jobs/{job}").json()["said"]:
        time.sleep(0.01)
    os.kill(service.jobs._process.pid, signal.SIGKILL)
    done = service.ended(job)
    assert done["state"] == "done" and steps(service.path) == [*past, "learn"] and done["version"] != before
    assert service.job("rollback")["state"] == "done"


def test_one_service_at_a_time_has_the_jobs_of_a_model(service: Service) -> None:
    with pytest.raises(SafeclError, match="Another service has the jobs of"):
        Jobs({"m": service.path}, "cpu", str)
    assert service.ask(service.pictures("a")[0])["answers"][0]["label"]


def test_a_job_waits_for_another_command_and_a_label_that_spells_a_number_is_a_word_here(service: Service) -> None:
    with locked(service.path):
        job = service.client.post("/api/models/m/correct", json=service.taught("w", 1, seed=4, label="7"))
        time.sleep(0.5)
        assert service.client.get(f"/api/jobs/{job.json()['job']['id']}").json()["state"] == "running"
    assert service.ended(job.json()["job"]["id"])["state"] == "done"
    assert "7" in ModelFile(service.path).header["classes"]
    assert service.job("rollback")["state"] == "done"


@pytest.mark.slow
def test_jobs_go_on_after_a_restart_and_one_that_took_effect_is_not_done_again(start: Start, path: Path) -> None:
    with start(path) as one:
        first = one.client.post("/api/models/m/learn", json=one.taught("efgh", 8, seed=4)).json()["job"]["id"]
        second = one.client.post("/api/models/m/correct", json=one.taught("k", 2, seed=4)).json()["job"]["id"]
        one.client.post("/api/models/m/rollback")
        while not one.client.get(f"/api/jobs/{first}").json()["said"]:
            time.sleep(0.01)
    # All three are kept, and the pictures of those that bring some.
    kept = {one["what"]: one for one in (json.loads(file.read_bytes()) for file in one.jobs.folder("m").glob("*.json"))}
    assert {one["state"] for one in kept.values()} == {"waiting"} and len(kept) == 3 and steps(path) == ["learn"] * 2
    assert oct(one.jobs.folder("m").stat().st_mode & 0o777) == "0o700"
    with start(path) as again:
        assert again.ended(first)["state"] == again.ended(second)["state"] == "done"
        assert again.ended(kept["rollback"]["id"])["state"] == "done"
        assert steps(path) == ["learn"] * 3 and again.version == ModelFile(path).version
        digest, folder = ModelFile(path).digest, again.jobs.folder("m")
        # As if it had been killed between the model's rename and its own.
        job, made = again.jobs.all[first], ModelFile(path).header["history"][-1]["id"]
        (folder / first).mkdir()
        (folder / first / "effect.json").write_text(
            json.dumps({"made": [made], "gone": [], "said": "so", "result": {}})
        )
        (folder / f"{first}.json").write_text(json.dumps({**job, "state": "waiting", "pictures": 0}))
    with start(path) as last:
        done = last.ended(first)
        assert (done["state"], done["said"]) == ("done", "so") and ModelFile(path).digest == digest
        path.write_bytes(b"damaged")
        failed = last.job("rollback")
        assert failed["state"] == "failed" and "no model file of safecl" in failed["error"]


def test_a_full_disk_is_a_sentence_and_answers_go_on(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    from safecl.serve import jobs

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(jobs, "write_json", full)
    refused = service.client.post("/api/models/m/correct", json=service.taught("a", 1, seed=8))
    assert refused.status_code == 507 and "No space left" in refused.json()["error"]
    assert service.ask(service.pictures("a")[0])["answers"][0]["label"]
    assert not [one for one in service.jobs.folder("m").iterdir() if one.is_dir()]


# As processes


class Process:
    """``safecl serve`` in a process of its own."""

    def __init__(self, path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        import httpx

        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False)
        command = [sys.executable, "-m", "safecl", "serve", str(path), "--port", str(port), "--device", "cpu"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None and "Serving m at" in self.process.stdout.readline()

    def end(self, how: int) -> int:
        self.process.send_signal(how)
        return self.process.wait(60)


@pytest.fixture
def begin(path: Path) -> Iterator[Callable[[], Process]]:
    running: list[Process] = []

    def make() -> Process:
        running.append(Process(path))
        return running[-1]

    yield make
    for one in running:
        one.process.kill()
        one.process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("what", ["learn", "correct"])
def test_killed_at_ten_instants_it_has_the_old_model_or_the_new_one_and_goes_on(
    what: str, path: Path, begin: Callable[[], Process], lesson: Any
) -> None:
    asking, instants, known = Service(None, path, lesson, None, None), random.Random(7), steps(path)

    def ended(service: Process, job: str) -> dict[str, Any]:
        until = time.monotonic() + 240
        while (found := service.client.get(f"/api/jobs/{job}").json())["state"] in ("waiting", "running"):
            assert time.monotonic() < until
            time.sleep(0.1)
        return dict(found)

    def post(service: Process, what: str, body: Any) -> str:
        return str(service.client.post(f"/api/models/m/{what}", json=body).json()["job"]["id"])

    service, torn = begin(), 0
    for number in range(10):
        body = asking.taught("efghijklmn"[number], 6, seed=4)
        pictures = [one["data"] for one in body["pictures"]]
        ended(service, post(service, "queue", {"pictures": pictures}))  # the process that learns has started
        job = post(service, what, body)
        time.sleep(instants.uniform(0, 3.0 if what == "learn" else 0.8))
        service.end(signal.SIGKILL)
        assert steps(path) in (known, [*known, what])  # and it can be opened
        torn += json.loads(path.with_name(".m.safecl.jobs").joinpath(f"{job}.json").read_bytes())["state"] == "waiting"
        service, known = begin(), [*known, what]
        found = ended(service, job)
        assert found["state"] == "done" and steps(path) == known, (number, found)
        assert {one.suffix for one in path.with_name(".m.safecl.jobs").iterdir()} == {".json"}
    assert torn and service.end(signal.SIGTERM) in (0, -signal.SIGTERM)
