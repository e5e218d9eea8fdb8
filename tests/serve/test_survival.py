"""Killed at any instant, the service goes on where it was: no job is lost, and none is done
twice.
"""

import io
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from safecl.classifier.modelfile.store import ModelFile
from safecl.outputs import locked
from safecl.serve.decoding import Decoders, end
from safecl.serve.jobs import Jobs
from tests.conftest import raises

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
    before = service.version
    past = steps(service.path)
    job = service.client.post("/api/models/m/learn", json=service.taught("uv", 8, seed=4)).json()[
        "job"
    ]["id"]
    while not service.client.get(f"/api/jobs/{job}").json()["said"]:
        time.sleep(0.01)
    os.kill(service.jobs._process.pid, signal.SIGKILL)
    done = service.ended(job)
    assert (
        done["state"] == "done"
        and steps(service.path) == [*past, "learn"]
        and done["version"] != before
    )
    assert service.job("rollback")["state"] == "done"


def test_one_service_at_a_time_has_the_jobs_of_a_model(service: Service) -> None:
    with raises("serve.jobs.busy"):
        Jobs({"m": service.path}, "cpu", str)
    assert service.ask(service.pictures("a")[0])["answers"][0]["label"]


def test_a_job_waits_for_another_command_and_a_label_that_spells_a_number_is_a_word_here(
    service: Service,
) -> None:
    with locked(service.path):
        job = service.client.post(
            "/api/models/m/correct", json=service.taught("w", 1, seed=4, label="7")
        )
        time.sleep(0.5)
        assert (
            service.client.get(f"/api/jobs/{job.json()['job']['id']}").json()["state"] == "running"
        )
    assert service.ended(job.json()["job"]["id"])["state"] == "done"
    assert "7" in ModelFile(service.path).header["classes"]
    assert service.job("rollback")["state"] == "done"


@pytest.mark.slow
def test_jobs_go_on_after_a_restart_and_one_that_took_effect_is_not_done_again(
    start: Start, path: Path
) -> None:
    with locked(path), start(path) as one:  # so that none ends before the service does
        first = one.client.post("/api/models/m/learn", json=one.taught("efgh", 8, seed=4)).json()[
            "job"
        ]["id"]
        second = one.client.post("/api/models/m/correct", json=one.taught("k", 2, seed=4)).json()[
            "job"
        ]["id"]
        one.client.post("/api/models/m/rollback", json={"step": one.about["rolls_back"]})
        while one.client.get(f"/api/jobs/{first}").json()["state"] == "waiting":
            time.sleep(0.01)
    # All three are kept, and the pictures of those that bring some.
    kept = {
        one["what"]: one
        for one in (json.loads(file.read_bytes()) for file in one.jobs.folder("m").glob("*.json"))
    }
    assert (
        {one["state"] for one in kept.values()} == {"waiting"}
        and len(kept) == 3
        and steps(path) == ["learn"] * 2
    )
    assert oct(one.jobs.folder("m").stat().st_mode & 0o777) == "0o700"
    with start(path) as again:
        assert again.ended(first)["state"] == again.ended(second)["state"] == "done"
        late = again.ended(kept["rollback"]["id"])  # of a step that is no longer the last
        assert late["state"] == "failed" and again.job("rollback")["state"] == "done"
        assert steps(path) == ["learn"] * 3 and again.version == ModelFile(path).version
        digest = ModelFile(path).digest
        folder = again.jobs.folder("m")
        # As if it had been killed between the model's rename and its own.
        job = again.jobs.all[first]
        made = ModelFile(path).header["history"][-1]["id"]
        (folder / first).mkdir()
        (folder / first / "effect.json").write_text(
            json.dumps({"step": made, "said": "so", "result": {}})
        )
        (folder / f"{first}.json").write_text(
            json.dumps({**job, "state": "waiting", "pictures": 0})
        )
        # One whose pictures somebody has deleted.
        lost = {**again.jobs.all[second], "state": "waiting", "labels": ["k", "k"]}
        (folder / f"{second}.json").write_text(json.dumps(lost))
    with start(path) as last:
        failed = last.ended(second)
        assert (
            failed["state"] == "failed"
            and "picture 00000" in failed["error"]
            and ModelFile(path).digest == digest
        )
        done = last.ended(first)
        assert (done["state"], done["said"]) == ("done", "so") and ModelFile(path).digest == digest
        path.write_bytes(b"damaged")
        failed = last.job("rollback", {"step": made})
        assert failed["state"] == "failed" and "no model file of safecl" in failed["error"]


def test_a_job_has_ended_on_the_disk_before_its_pictures_go(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a kill in between would do it once more, without them."""
    states = list[str]()
    remove = shutil.rmtree

    def watched(folder: Path, **options: Any) -> None:
        states.append(json.loads(folder.with_suffix(".json").read_bytes())["state"])
        remove(folder, **options)

    monkeypatch.setattr(shutil, "rmtree", watched)
    assert service.job("correct", service.taught("k", 1, seed=4))["state"] == "done"
    assert set(states) == {"done"}


def test_a_full_disk_is_a_sentence_and_answers_go_on(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safecl.serve import jobs

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(jobs, "write_json", full)
    refused = service.client.post("/api/models/m/correct", json=service.taught("a", 1, seed=8))
    assert refused.status_code == 507 and "No space left" in refused.json()["error"]
    assert service.ask(service.pictures("a")[0])["answers"][0]["label"]
    assert not [one for one in service.jobs.folder("m").iterdir() if one.is_dir()]


def test_a_full_disk_in_a_lesson_is_a_sentence_of_its_job_and_answers_go_on(
    service: Service,
) -> None:
    resource = pytest.importorskip("resource")
    digest = ModelFile(service.path).digest
    picture = service.pictures("a")[0]
    resource.prlimit(
        service.jobs._process.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY)
    )
    failed = [service.job(what, service.taught("u", 3, seed=6)) for what in ("learn", "correct")]
    for job in failed:
        assert (
            job["state"] == "failed"
            and job["error"][-1] == "."
            and "File too large" in job["error"]
        ), job
        assert str(service.path.parent) not in job["error"]
    assert ModelFile(service.path).digest == digest and service.ask(picture)["answers"][0]["label"]
    resource.prlimit(
        service.jobs._process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2
    )
    assert service.job("correct", service.taught("u", 3, seed=6))["state"] == "done"
    assert service.job("rollback")["state"] == "done"


@pytest.mark.slow
def test_a_stop_between_two_attempts_is_kept(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = []
    do = service.jobs._do

    def dying(job: dict[str, Any]) -> Any:
        attempts.append(job)
        if len(attempts) > 1:
            return do(job)
        end(service.jobs._process)
        service.jobs.stop(job)
        return None

    monkeypatch.setattr(service.jobs, "_do", dying)
    before = service.version
    assert service.job("correct", service.taught("u", 1, seed=6))["state"] == "stopped"
    assert len(attempts) == 2 and service.version == before


def test_orders_of_several_threads_arrive_whole(service: Service) -> None:
    class Slow:
        lines = ""

        def writelines(self, lines: Iterator[str]) -> None:
            for line in lines:
                for part in (line[:20], line[20:]):
                    self.lines += part
                    time.sleep(0.001)

        def flush(self) -> None:
            time.sleep(0.001)

    jobs = object.__new__(Jobs)
    there = Slow()
    jobs._sending = threading.Lock()
    jobs._process = SimpleNamespace(stdin=there)  # type: ignore[assignment]
    send = lambda name: [jobs._send({"job": name * 30, "i": i}) for i in range(10)]  # noqa: E731
    threads = [threading.Thread(daemon=True, target=send, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([json.loads(line) for line in there.lines.splitlines()]) == 30


def test_pictures_are_decoded_with_limits_and_progress_is_told_before_a_job_writes(
    path: Path, lesson: Any
) -> None:
    from safecl.serve.learner import Learner, Sent
    from safecl.streams.pictures.files import FilePictures
    from safecl.streams.pictures.find import File

    sent = Service(None, path, lesson, None, None).pictures("n", 3, seed=6)
    told = list[Any]()
    folder = path.parent
    for i, data in enumerate(sent):
        (folder / f"{i:05d}").write_bytes(data)
    file = io.BytesIO()
    pool = Decoders(1, 8)
    Image.linear_gradient("L").resize((900, 608)).convert("RGB").save(file, "JPEG")
    (folder / "large").write_bytes(file.getvalue())
    files = [File.at(folder / "00000"), File.at(folder / "large")]
    labels = ["", ""]
    for least in (None, 100):  # the pixels are those that are read without a process
        for i in range(2):
            one = Sent(files, labels, decoders=pool)
            other = FilePictures(files, labels)
            assert np.array_equal(
                np.asarray(one.reduced(i, least)), np.asarray(other.reduced(i, least))
            )
    pool.close()
    job = dict.fromkeys(("step", "count")) | {
        "what": "correct",
        "path": str(path),
        "folder": str(folder),
    }
    job |= {"pictures": 3, "labels": ["n"] * 3}
    learner = Learner("cpu")
    done = learner.do(job, lambda **facts: told.append(facts), lambda: False)
    assert (
        told
        and told[-1]["progress"] > 0
        and done["step"] == ModelFile(path).header["history"][-1]["id"]
    )
    head = struct.pack(">IIBBBBB", 8000, 8000, 8, 2, 0, 0, 0)
    chunk = (
        struct.pack(">I", len(head))
        + b"IHDR"
        + head
        + struct.pack(">I", zlib.crc32(b"IHDR" + head))
    )
    (folder / "00001").write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk + struct.pack(">I", 0) + b"IEND\xaeB`\x82"
    )
    (folder / "effect.json").unlink()
    with raises("picture.unreadable", reason=re.compile("more than 50,000,000 pixels")):
        learner.do(job, lambda **facts: None, lambda: False)
    learner._decoders.close()


def test_the_model_of_the_last_job_is_used_again_unless_its_file_has_changed(
    path: Path, lesson: Any
) -> None:
    from safecl.classifier.classifier import ContinualClassifier
    from safecl.serve.learner import Learner

    sent = Service(None, path, lesson, None, None).pictures("mn", 2, seed=6)
    twin = path.with_name("twin.safecl")
    twin.write_bytes(path.read_bytes())
    learner = Learner("cpu")
    models = list[Any]()
    learner.warm(path)
    warm = learner.last
    for number, label in enumerate("nmdn"):
        for file in (path, twin):
            folder = path.with_name(f"{file.stem} {number}")
            folder.mkdir()
            (folder / "00000").write_bytes(sent[number])
            job = dict.fromkeys(("step", "count")) | {
                "what": "correct",
                "path": str(file),
                "folder": str(folder),
            }
            # one is read again before each job
            learner.last = None if file == twin else (models or [warm])[-1]
            learner.do(
                job | {"pictures": 1, "labels": [label]}, lambda **facts: None, lambda: False
            )
            if file == path:
                models.append(learner.last)
            if number == 1:  # another command changes both
                other = ContinualClassifier.load(file)
                other.rename("d", "e")
                other.save(file)
    learner._decoders.close()
    assert warm is not None and warm[1] is models[0][1] is models[1][1]
    assert models[1][1] is not models[2][1] is models[3][1]
    ours = ContinualClassifier.load(path)
    theirs = ContinualClassifier.load(twin)
    assert ours.classes_.tolist() == theirs.classes_.tolist() == list("abcdemn")
    pictures = lesson("abcdmn", 3)[0]
    # the map to the fast learner is fitted anew where a model is read, and kept where it is at hand
    assert ours.predict(pictures).tolist() == theirs.predict(pictures).tolist()
    assert np.allclose(
        ours.decision_function(pictures), theirs.decision_function(pictures), atol=0.1
    )
    keys = ("classes", "calibration", "statistics")
    assert all(ModelFile(path).header[key] == ModelFile(twin).header[key] for key in keys)


# As processes


class Process:
    """``safecl serve`` in a process of its own."""

    def __init__(self, path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        import httpx

        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False)
        command = [
            sys.executable,
            "-m",
            "safecl",
            "serve",
            str(path),
            "--port",
            str(port),
            "--device",
            "cpu",
        ]
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
    asking = Service(None, path, lesson, None, None)
    instants = random.Random(7)
    known = steps(path)

    def ended(service: Process, job: str) -> dict[str, Any]:
        until = time.monotonic() + 240
        while (found := service.client.get(f"/api/jobs/{job}").json())["state"] in (
            "waiting",
            "running",
        ):
            assert time.monotonic() < until
            time.sleep(0.1)
        return dict(found)

    def post(service: Process, what: str, body: Any) -> str:
        return str(service.client.post(f"/api/models/m/{what}", json=body).json()["job"]["id"])

    service = begin()
    torn = 0
    for number in range(10):
        body = asking.taught("efghijklmn"[number], 6, seed=4)
        pictures = [one["data"] for one in body["pictures"]]
        # the process that learns has started
        ended(service, post(service, "queue", {"pictures": pictures}))
        job = post(service, what, body)
        time.sleep(instants.uniform(0, 3.0 if what == "learn" else 0.8))
        service.end(signal.SIGKILL)
        assert steps(path) in (known, [*known, what])  # and it can be opened
        torn += (
            json.loads(path.with_name(".m.safecl.jobs").joinpath(f"{job}.json").read_bytes())[
                "state"
            ]
            == "waiting"
        )
        service = begin()
        known = [*known, what]
        found = ended(service, job)
        assert found["state"] == "done" and steps(path) == known, (number, found)
        assert {
            one.name for one in path.with_name(".m.safecl.jobs").iterdir() if one.suffix != ".json"
        } == {".lock"}
    assert torn and service.end(signal.SIGTERM) in (0, -signal.SIGTERM)
