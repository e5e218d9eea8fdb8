"""What goes wrong behind the requests is heard: in the job it belongs to, in the log, and never as
silence.
"""

import json
import os
import queue
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from safecl.serve import decoding, jobs
from safecl.serve.jobs import Jobs, watch
from safecl.serve.limits import OURS


class Quick(Jobs):
    """Without a process: a job is done as soon as it has its turn."""

    def _start(self) -> None:
        pass

    def _do(self, job: dict[str, Any]) -> dict[str, Any]:
        return {"end": "done", "said": "so"}


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Quick]]:
    """``begin(changed)``: the jobs of a model, as of a service that starts."""
    started: list[Quick] = []

    def make(changed: Callable[[str], Any] = str) -> Quick:
        for one in started:
            one.close()
        started.append(Quick({"m": tmp_path / "m.safecl"}, "cpu", changed))
        return started[-1]

    yield make
    started[-1].close()


def ended(found: Jobs, job: str) -> dict[str, Any]:
    until = time.monotonic() + 30
    while found.all[job]["state"] in ("waiting", "running"):
        assert time.monotonic() < until
        time.sleep(0.01)
    return found.told(found.all[job])


def test_a_job_that_cannot_be_read_after_a_restart_has_failed_and_is_not_forgotten(
    begin: Callable[..., Quick], capfd: pytest.CaptureFixture[str]
) -> None:
    folder = begin().folder("m")
    good = begin().add("m", "queue", [b"x"], [])["id"]
    kept = json.loads((folder / f"{good}.json").read_bytes())
    wrong = json.dumps({**kept, "created": "x"}).encode()
    spoilt = {
        "torn": b'{"id": "to',
        "bare": b"{}",
        "list": b"[]",
        "time": wrong,
        "deep": b"[" * 100_000,
    }
    for name, text in spoilt.items():
        (folder / name).mkdir()
        (folder / name / "00000").write_bytes(b"a picture")
        (folder / f"{name}.json").write_bytes(text)
    for _ in range(2):
        found = begin()
        for name in spoilt:
            job = found.told(found.all[name])
            assert (job["state"], job["error"]) == ("failed", jobs.LOST) and not (
                folder / name
            ).exists()
        said = capfd.readouterr().err.splitlines()
        assert len(said) == len(spoilt) and all(
            "is damaged, so its job is not done" in line for line in said
        )
    assert ended(found, found.add("m", "queue", [b"x"], [])["id"])["state"] == "done"


def test_a_file_that_was_overwritten_with_its_size_and_time_kept_is_read_anew(
    tmp_path: Path,
) -> None:
    path = tmp_path / "m.safecl"
    read = queue.Queue[str]()
    closed = threading.Event()
    watching = threading.Thread(
        target=watch, args=({"m": path}, lambda name: read.put(path.read_text()) or name, closed)
    )
    for text in ("a", "b"):
        path.write_text(text)
        os.utime(path, (1, 1))
        if not watching.is_alive():
            watching.start()
        while read.get(timeout=10) != text:
            pass
    closed.set()
    watching.join()


def test_a_job_that_fails_in_an_unknown_way_leaves_those_that_wait(
    begin: Callable[..., Quick], capfd: pytest.CaptureFixture[str]
) -> None:
    found = begin(lambda name: object())  # no version that can be written
    for _ in range(2):
        job = ended(found, found.add("m", "queue", [b"x"], [])["id"])
        assert (job["state"], job["error"]) == ("failed", OURS)
    assert "Traceback" in capfd.readouterr().err


def test_what_cannot_be_kept_or_deleted_at_the_end_of_a_job_is_in_the_log(
    begin: Callable[..., Quick], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    found = begin()
    going = threading.Event()
    found._do = lambda job: going.wait(30) and {"end": "done"}  # type: ignore[method-assign,return-value]
    job = found.add("m", "queue", [b"x"], [])["id"]

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(jobs, "write_json", full)
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    going.set()
    assert ended(found, job)["state"] == "done"
    monkeypatch.undo()
    said = capfd.readouterr().err.splitlines()
    assert (
        f"That the job {job} has ended is not kept, so a restart may do it again: [Errno 28]"
        in said[1]
    )
    assert (
        said[0]
        == f"{found.folder('m') / job} could not be deleted; it may hold pictures that were sent."
    )


def test_a_fault_while_decoding_ends_its_request_and_not_the_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = decoding.Decoders(1, 8)
    ask = decoding._ask

    def short(*given: Any) -> Any:
        if given[1] == b"large":
            raise MemoryError
        return ask(*given)

    monkeypatch.setattr(decoding, "_ask", short)
    try:
        for _ in range(2):
            with pytest.raises(MemoryError):
                pool.submit([b"large"], 4, 4).result(30)
        assert pool.submit([b"none"], 4, 4).result(30) == ["not a picture"]
    finally:
        pool.close()
