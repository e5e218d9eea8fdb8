"""A model that is not there yet is served: it answers nobody, and its first lesson makes it."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from safecl.classifier.modelfile.store import ModelFile
from safecl.serve.limits import Access

from .conftest import Service


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.safecl"


@pytest.fixture(scope="module")
def new(start: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with start(tmp_path_factory.mktemp("new") / "m.safecl") as found:
        yield found


def test_it_has_no_version_and_no_class_and_whoever_asks_is_told(new: Service) -> None:
    about = new.about
    assert (about["version"], about["classes"], about["history"]) == ("", [], [])
    assert about["may_change"] and about["rolls_back"] is None
    (line,) = new.client.get("/api/models").json()["models"]
    assert line == {key: about[key] for key in line} | {"classes": 0}
    assert new.client.get("/health").json() == {"status": "UP"}
    picture = new.pictures("a")[0]
    sent = {"Content-Type": "image/png"}
    taught = new.taught("a")
    asked = {
        "predict": {"content": picture, "headers": sent},
        "heat_map": {"content": picture, "headers": sent},
        "correct": {"json": taught},
        "queue": {"json": {"pictures": [taught["pictures"][0]["data"]]}},
        "rollback": {"json": {"step": "0"}},
        "audit": {"json": {}},
        "export": {"json": {}},
    }
    for what, given in asked.items():
        answer = new.client.post(f"/api/models/m/{what}", **given)
        assert (answer.status_code, answer.json()["code"]) == (409, "serve.model.new"), what
    for place in ("/api/models/m/file", "/v2/models/m", "/v2/models/m/ready"):
        assert new.client.get(place).status_code == 409, place
    assert not new.path.exists() and new.jobs.all == {}


def test_what_cannot_be_learned_makes_no_file_and_every_unreadable_picture_is_named(
    new: Service,
) -> None:
    taught = new.taught("ab", 2)
    whole = [one["data"] for one in taught["pictures"]]
    for place in (1, 3):  # half of a picture
        taught["pictures"][place]["data"] = whole[place][: 4 * (len(whole[place]) // 8)]
    answer = new.client.post("/api/models/m/learn", json=taught)
    told = answer.json()
    assert (answer.status_code, told["code"]) == (422, "serve.job.picture")
    assert set(told["pictures"]) == {"1", "3"} and told["error"].startswith("Picture 1 ")
    for label in (" ", "a/b", "a "):
        refused = new.client.post("/api/models/m/learn", json=new.taught("a", 1, label=label))
        assert refused.status_code == 422 and refused.json()["error"], label
    empty = {"pictures": [{"data": "", "label": "a"}]}
    assert "is empty" in new.client.post("/api/models/m/learn", json=empty).json()["error"]
    assert not new.path.exists() and new.jobs.all == {}


def test_it_answers_once_something_else_has_put_a_file_there(
    start: Callable[..., Any], path: Path, model_file: Path
) -> None:
    with start(path) as service:
        assert service.version == ""
        shutil.copyfile(model_file, path.with_name("aside"))
        os.replace(path.with_name("aside"), path)
        until = time.monotonic() + 30
        while not service.version and time.monotonic() < until:
            time.sleep(0.05)
        assert service.version == ModelFile(path).version
        assert service.ask(service.pictures("a")[0])["answers"][0]["label"]


def test_the_whole_model_is_for_who_may_change_it(
    service: Service, start: Callable[..., Any], path: Path, model_file: Path
) -> None:
    copied = Path(shutil.copyfile(model_file, path))
    whole = service.client.get("/api/models/m/file")
    assert whole.content == service.path.read_bytes()
    assert 'filename="m.safecl"' in whole.headers["content-disposition"]
    with start(copied, Access(token="a" * 9, read_token="b" * 9)) as guarded:
        status = [
            guarded.client.get("/api/models/m/file", headers={"Authorization": f"Bearer {one * 9}"})
            for one in "ab"
        ]
        assert [one.status_code for one in status] == [200, 403]


@pytest.mark.slow
def test_a_first_lesson_makes_the_model_whatever_is_killed_meanwhile(
    start: Callable[..., Any], path: Path
) -> None:
    with start(path) as service:
        sent = service.taught("ab", 8)
        job = service.client.post("/api/models/m/learn", json=sent).json()["job"]["id"]
        while not service.client.get(f"/api/jobs/{job}").json()["said"]:
            time.sleep(0.01)
        os.kill(service.jobs._process.pid, signal.SIGKILL)
        time.sleep(0.5)
    with start(path) as again:
        done = again.ended(job)
        assert done["state"] == "done" and done["result"]["new"] == ["a", "b"], done
        assert done["version"] == again.version == ModelFile(path).version
        assert [one["what"] for one in ModelFile(path).header["history"]] == ["learn"]
        assert again.ask(again.pictures("a", seed=0)[0])["answers"][0]["label"] in ("a", "b")
        assert again.job("correct", again.taught("c", 2))["state"] == "done"
        assert again.job("rollback")["state"] == "done"


@pytest.mark.slow
def test_a_lesson_that_was_written_and_not_told_is_not_done_twice(
    start: Callable[..., Any], path: Path
) -> None:
    with start(path) as service:
        first = service.job("learn", service.taught("ab", 4))
        assert first["state"] == "done", first
        made = ModelFile(path).header["history"][-1]["id"]
        kept = service.jobs.all[first["id"]]
    folder = path.with_name(".m.safecl.jobs")
    (folder / first["id"]).mkdir()
    effect = {"step": made, "said": "so", "result": {}}
    (folder / first["id"] / "effect.json").write_text(json.dumps(effect))
    waiting = {**kept, "state": "waiting", "pictures": 0}
    (folder / f"{first['id']}.json").write_text(json.dumps(waiting))
    digest = ModelFile(path).digest
    with start(path) as again:
        assert again.ended(first["id"])["said"] == "so" and ModelFile(path).digest == digest


@pytest.mark.slow
def test_an_export_is_one_file_of_each_model(service: Service) -> None:
    pytest.importorskip("onnxscript")
    first = service.job("export", {"precision": "fp32"})
    assert first["state"] == "done", first
    file = service.client.get(f"/api/jobs/{first['id']}/file")
    assert len(file.content) == first["result"]["bytes"] and b"safecl" in file.content[:99]
    second = service.job("export", {"precision": "fp16"})
    gone = service.client.get(f"/api/jobs/{first['id']}/file")
    assert (gone.status_code, gone.json()["code"]) == (404, "serve.export.gone")
    again = service.client.get(f"/api/jobs/{second['id']}/file").content
    assert len(again) == second["result"]["bytes"] < len(file.content)
    assert [one.stem for one in service.jobs.folder("m").glob("*.onnx")] == [second["id"]]
