"""The service answers as the model does, learns, and changes nothing for who may not."""

import asyncio
import contextlib
import io
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from PIL import Image

from safecl.classifier.answers.explain import SIDE
from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.modelfile.store import ModelFile
from safecl.errors import SafeclError
from safecl.serve.jobs import NICENESS
from tests.conftest import raises

from .conftest import Service, png, text

Start = Callable[..., Any]


def test_answers_are_those_of_the_model(service: Service, tmp_path: Path) -> None:
    pictures = service.pictures("abcd", 3)
    files = []
    for i, picture in enumerate(pictures):
        files.append(tmp_path / f"{i}.png")
        files[-1].write_bytes(picture)
    expected = ContinualClassifier.load(service.path, device="cpu").explain(files)
    answer = service.client.post(
        "/api/models/m/predict?detail=1", json={"pictures": list(map(text, pictures))}
    ).json()
    assert answer["version"] == ModelFile(service.path).version and len(answer["answers"]) == 12
    for found, one in zip(answer["answers"], expected, strict=True):
        assert found["label"] == one.label and found["unknown"] == one.unknown
        assert found["probability"] == pytest.approx(one.probability, abs=1e-5)
        assert [label for label, _ in found["nearest"]] == [label for label, _ in one.nearest]
        assert found["opinions"].keys() == {"slow", "fast", "safe"} and found["weights"].keys() == {
            "slow",
            "fast",
        }
    single = service.ask(pictures[0])["answers"][0]
    assert (
        single.keys() == {"label", "probability", "unknown", "nearest"}
        and single["label"] == expected[0].label
    )
    assert service.ask(pictures[0], unknown=0)["answers"][0]["unknown"] is False
    sets = ContinualClassifier.load(service.path, device="cpu").predict_sets(files[:1], 0.8)
    assert service.ask(pictures[0], sets=0.8)["answers"][0]["set"] == list(sets[0])
    for share, why in ((0.999, "too few"), (1.5, "less than 1")):
        refused = service.client.post(
            f"/api/models/m/predict?sets={share}", json={"pictures": [text(pictures[0])]}
        )
        assert refused.status_code == 422 and why in refused.json()["error"]


def test_requests_that_arrive_together_are_answered_together(service: Service) -> None:
    pictures = service.pictures("abcd", 6)
    before = service.desk.gauges()
    found = dict[int, str]()

    def ask(i: int) -> None:
        found[i] = service.ask(pictures[i])["answers"][0]["label"]

    threads = [threading.Thread(daemon=True, target=ask, args=(i,)) for i in range(len(pictures))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = service.desk.gauges()
    assert after["pictures_total"] - before["pictures_total"] == len(pictures) == len(found)
    assert after["batches_total"] - before["batches_total"] < len(pictures)
    assert [found[i] for i in range(len(pictures))] == [
        service.ask(one)["answers"][0]["label"] for one in pictures
    ]


def test_a_picture_that_cannot_be_read_among_others_has_its_reason(service: Service) -> None:
    pictures = [text(service.pictures("a")[0]), text(b"none"), text(service.pictures("b")[0])]
    answers = service.client.post("/api/models/m/predict", json={"pictures": pictures}).json()[
        "answers"
    ]
    assert answers[1] == {"error": "not a picture"} and all("label" in answers[i] for i in (0, 2))


def test_what_a_model_says_of_itself(service: Service) -> None:
    said = service.client.get("/api/models/m").json()
    assert service.client.get("/api/models").json()["models"][0]["name"] == "m"
    assert [one["label"] for one in said["classes"]][:4] == list("abcd") and said["classes"][0][
        "pictures"
    ] == 8
    assert (
        said["method"] == "safe"
        and said["may_change"]
        and said["rolls_back"] in (None, said["history"][-1]["id"])
        and not said["frozen"]
    )
    assert said["history"][0]["what"] == "learn" and said["history"][0]["new"] == list("abc")
    assert said["size"] == service.path.stat().st_size and 0 <= said["accuracy"]["value"] <= 1
    assert service.client.get("/health").json() == {"status": "UP"}
    picture = service.pictures("a")[0]
    head = {"Content-Type": "image/png"}
    answer = service.client.post("/api/models/m/heat_map?label=b", content=picture, headers=head)
    assert answer.headers["content-type"] == "image/png"
    assert (
        Image.open(io.BytesIO(answer.content)).width == SIDE > Image.open(io.BytesIO(picture)).width
    )
    assert (
        service.client.post(
            "/api/models/m/heat_map?label=z", content=picture, headers=head
        ).status_code
        == 422
    )
    metrics = service.client.get("/metrics").text
    assert 'safecl_requests_total{route="/api/models/{model}",status="200"}' in metrics
    assert "safecl_batches_total " in metrics and 'safecl_jobs{state="done"}' in metrics


def test_it_learns_is_corrected_and_rolled_back_while_it_answers(service: Service) -> None:
    """Answers carry the version that gave them, and their classes are those of that version."""
    first = service.version
    before = service.client.get("/api/models/m").json()
    classes = {first: set("abcd")}
    wrong = list[Any]()
    over = threading.Event()
    pictures = service.pictures("abcdx", 2)

    def ask() -> None:
        while not over.is_set():
            for picture in pictures:
                answer = service.ask(picture)
                told = {label for label, _ in answer["answers"][0]["nearest"]}
                wrong.append((answer["version"], told))

    threads = [threading.Thread(daemon=True, target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    body = service.taught("x", 6, seed=1) | {"name": "later"}
    learned = service.job("learn", body)
    assert (
        learned["state"] == "done"
        and learned["result"]["new"] == ["x"]
        and learned["progress"] == 1
    ), learned
    assert learned["version"] == service.version != first
    classes[learned["version"]] = set("abcdx")
    corrected = service.job("correct", service.taught("x", 2, seed=1, label="y"))
    assert corrected["state"] == "done", corrected
    classes[corrected["version"]] = set("abcdxy")
    removed = service.job("correct", service.taught("x", 2, seed=1, label=None))
    classes[removed["version"]] = set("abcdx")
    again = service.job("rollback")
    classes[again["version"]] = set("abcdxy")
    assert [entry["what"] for entry in service.client.get("/api/models/m").json()["history"]][
        2:
    ] == [
        "learn",
        "correct",
    ]
    for _ in range(2):
        back = service.job("rollback")
        assert back["state"] == "done", back
        classes[back["version"]] = set("abcdx") if _ == 0 else set("abcd")
    over.set()
    for thread in threads:
        thread.join()
    after = service.client.get("/api/models/m").json()
    assert after["history"] == before["history"] and after["classes"] == before["classes"]
    assert len({version for version, _ in wrong}) > 1
    for version, told in wrong:
        known = classes.get(version, set("abcdx"))  # it answers before it is tuned
        assert len(told) == min(5, len(known)) and told <= known
    # no picture is kept
    assert not [path for path in service.jobs.folder("m").iterdir() if path.is_dir()]


@pytest.mark.skipif(
    not hasattr(os, "getsid"), reason="there are no sessions of processes on this system"
)
def test_the_process_that_learns_gives_way_to_answers_and_does_not_hear_ctrl_c(
    service: Service,
) -> None:
    """Linux weighs priorities among the processes of a session alone."""
    learner = service.jobs._process.pid
    assert os.getsid(learner) == os.getsid(0) and os.getpgid(learner) == learner


@pytest.mark.skipif(
    sys.platform != "linux", reason="threads have no priority of their own on this system"
)
def test_training_gives_way_to_answers_and_what_a_person_waits_for_does_not(
    start: Start, model_file: Path, tmp_path: Path
) -> None:
    """Threads of the process that learns, and of those that decode for it: a busy machine would
    starve a correction.
    """
    path = tmp_path / "m.safecl"
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    path.write_bytes(model_file.read_bytes())

    def priorities(job: str, body: Any) -> set[int]:
        posted = one.client.post(f"/api/models/m/{job}", json=body).json()["job"]["id"]
        learner = psutil.Process(one.jobs._process.pid)
        found = set()
        while one.client.get(f"/api/jobs/{posted}").json()["state"] in ("waiting", "running"):
            for process in (learner, *learner.children(recursive=True)):
                # it has ended meanwhile
                with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                    found |= {
                        os.getpriority(os.PRIO_PROCESS, thread.id) for thread in process.threads()
                    }
            time.sleep(0.01)
        assert one.ended(posted)["state"] == "done"
        return found

    with start(path, niceness=NICENESS) as one:
        assert priorities("correct", one.taught("k", 1, seed=4)) == {usual}, "from the start on"
        assert priorities("learn", one.taught("uv", 8, seed=4)) == {usual, NICENESS}


def test_a_picture_that_was_never_learned_is_added_by_a_correction(service: Service) -> None:
    body = service.taught("q", 3, seed=2, label="queer bird")
    added = service.job("correct", body)
    assert added["state"] == "done", added
    picture = service.pictures("q", 3, seed=2)[0]
    assert service.ask(picture)["answers"][0]["label"] == "queer bird"
    assert service.ask(picture)["version"] == added["version"]
    assert service.job("rollback")["state"] == "done"


def test_a_rollback_takes_back_the_step_that_was_meant_or_none(service: Service) -> None:
    """Also where another step is made, or a class renamed, between the look at the history and the
    job.
    """
    first = service.about["rolls_back"]
    corrected = service.job("correct", service.taught("r", 2, seed=2))
    made = corrected["step"]
    post = service.client.post
    assert service.about["rolls_back"] == made == service.about["history"][-1]["id"] != first
    for wrong in (first or "gone", "", "none"):
        refused = post("/api/models/m/rollback", json={"step": wrong})
        assert refused.status_code == 409 and "history" in refused.json()["error"], refused.text
    assert post("/api/models/m/rollback").status_code == 422
    with service.held():
        before = post("/api/models/m/correct", json=service.taught("s", 2, seed=2)).json()["job"][
            "id"
        ]
        late = post("/api/models/m/rollback", json={"step": made}).json()["job"]
        assert late["step"] == made
    step = service.ended(before)["step"]
    failed = service.ended(late["id"])
    assert failed["state"] == "failed" and "not the last step" in failed["error"], failed
    model = ContinualClassifier.load(service.path, device="cpu")
    model.rename("s", "t")
    model.save(service.path)
    service.desk.reload("m")
    assert service.about["history"][-1]["what"] == "rename" and service.about["rolls_back"] == step
    for one in (step, made):
        assert service.job("rollback", {"step": one})["state"] == "done"
    assert service.about["rolls_back"] == first and {"r", "s", "t"}.isdisjoint(
        ModelFile(service.path).header["classes"]
    )


def test_a_request_is_answered_by_the_model_that_was_there_when_it_came(
    service: Service, model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its views have the size that this model looks at."""
    before = service.version
    decode = service.desk.decode
    kept = service.path.read_bytes()

    async def swapping(*given: Any) -> Any:
        found = await decode(*given)
        model = ContinualClassifier.load(service.path, device="cpu")
        model.rename("a", "other")
        model.save(service.path)
        assert service.desk.reload("m") != before
        return found

    monkeypatch.setattr(service.desk, "decode", swapping)
    answer = service.ask(service.pictures("a")[0])
    monkeypatch.undo()
    assert answer["version"] == before and "a" in {
        label for label, _ in answer["answers"][0]["nearest"]
    }
    assert service.version != before
    service.path.write_bytes(kept)
    assert service.desk.reload("m") == before


def test_base64_is_decoded_beside_the_loop_that_takes_requests(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safecl.serve import app, protocol

    seen = []
    decode = app.pictures_of
    spy = lambda texts: seen.append(asyncio._get_running_loop()) or decode(texts)  # noqa: E731
    for module in (app, protocol):
        monkeypatch.setattr(module, "pictures_of", spy)
    data = [text(service.pictures("a")[0])]
    assert service.client.post("/api/models/m/predict", json={"pictures": data}).status_code == 200
    given = {"name": "pictures", "shape": [1], "datatype": "BYTES", "data": data}
    assert service.client.post("/v2/models/m/infer", json={"inputs": [given]}).status_code == 200
    assert seen == [None, None]


def test_the_queue_names_what_to_label_next(service: Service) -> None:
    job = service.job(
        "queue", {"pictures": [text(one) for one in service.pictures("abz", 2, seed=5)], "count": 3}
    )
    first = job["result"]["first"]
    assert job["state"] == "done" and len(first) == 3 and len({one["index"] for one in first}) == 3
    assert first[0]["answer"].keys() == {"label", "probability", "unknown", "nearest"}


def test_an_audit_names_what_does_harm(service: Service) -> None:
    found = service.job("audit", {"count": 3})["result"]
    expected = ContinualClassifier.load(service.path, device="cpu").audit().fields("m.safecl", 3)
    assert found["pictures"] == expected["pictures"] == 32 and len(found["harmful"]) == 3
    for one, other in zip(found["harmful"], expected["harmful"], strict=True):
        assert one["mark"] == other["mark"] and one["mends"] == other["mends"]


def test_events_tell_of_a_job_until_its_end(service: Service) -> None:
    job = service.client.post("/api/models/m/learn", json=service.taught("efgh", 3)).json()["job"]
    lines = service.client.get(f"/api/jobs/{job['id']}/events").text.splitlines()
    events = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    last = json.loads(
        [line for line in lines if line.startswith("data: ")][-1].removeprefix("data: ")
    )
    assert set(events[:-1]) == {"progress"} and events[-1] == "end" and last["state"] == "done"
    assert service.client.delete(f"/api/jobs/{job['id']}").status_code == 409
    assert service.job("rollback")["state"] == "done"


def test_a_job_that_fails_says_why_and_one_that_waits_or_works_can_be_stopped(
    service: Service,
) -> None:
    version = service.version
    known = service.taught("a", 8, seed=0)
    post = service.client.post
    bodies = [service.taught("ijklmn", 8, seed=3), known, service.taught("o", 2, seed=3)]
    with service.held():  # so that the first one cannot end before it is stopped
        first, second, third = (
            post("/api/models/m/learn", json=body).json()["job"]["id"] for body in bodies
        )
        assert service.client.delete(f"/api/jobs/{third}").json()["state"] == "stopped"
        while service.client.get(f"/api/jobs/{first}").json()["state"] == "waiting":
            time.sleep(0.01)
        service.client.delete(f"/api/jobs/{first}")
    assert service.ended(first)["state"] == "stopped" and service.ended(third)["state"] == "stopped"
    nothing = service.ended(second)
    assert nothing["state"] == "done" and nothing["said"].startswith(
        "There is nothing new in pictures"
    ), nothing
    assert service.version == version and not [
        path for path in service.jobs.folder("m").iterdir() if path.is_dir()
    ]


def test_the_protocol_of_kserve(service: Service) -> None:
    get = service.client.get
    version = service.version
    assert get("/v2/health/live").json()["live"] and get("/v2/health/ready").json()["ready"]
    assert get("/v2").json()["name"] == "safecl"
    said = get(f"/v2/models/m/versions/{version}").json()
    assert said["versions"] == [version] and said["inputs"] == [
        {"name": "pictures", "datatype": "BYTES", "shape": [-1]}
    ]
    assert (
        get("/v2/models/m/ready").json()["ready"]
        and get("/v2/models/m/versions/1/ready").status_code == 404
    )
    pictures = service.pictures("ab", 2)
    given = {
        "name": "pictures",
        "shape": [4],
        "datatype": "BYTES",
        "data": list(map(text, pictures)),
    }
    body = {"id": "7", "inputs": [given | {"parameters": {"content_type": "base64"}}]}
    answer = service.client.post(f"/v2/models/m/versions/{version}/infer", json=body).json()
    labels = {one["name"]: one for one in answer["outputs"]}["label"]
    assert (answer["id"], answer["model_name"], answer["model_version"]) == ("7", "m", version)
    assert labels["data"] == [
        service.ask(one)["answers"][0]["label"] for one in pictures
    ] and labels["shape"] == [4]
    only = service.client.post(
        "/v2/models/m/infer", json=body | {"outputs": [{"name": "unknown"}]}
    ).json()
    assert [one["name"] for one in only["outputs"]] == ["unknown"]
    for wrong in ({"datatype": "FP32"}, {"shape": [3]}, {"data": ["?"], "shape": [1]}):
        assert (
            service.client.post("/v2/models/m/infer", json={"inputs": [given | wrong]}).status_code
            == 422
        ), wrong


def test_tokens_give_rights(start: Start, model_file: Path, tmp_path: Path) -> None:
    from safecl.serve.limits import Access

    path = tmp_path / "m.safecl"
    path.write_bytes(model_file.read_bytes())
    access = Access.of("0.0.0.0", ["pets.example"], None, "to-read-only")
    assert access.token is not None and len(access.token) > 30
    with start(path, access) as one:
        client = one.client
        picture = one.pictures("a")[0]
        read, change = (
            {"Authorization": f"Bearer {token}"} for token in ("to-read-only", access.token)
        )
        asked = {"content": picture, "headers": {"Content-Type": "image/png"}}
        for wrong in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": access.token}):
            refused = client.get("/api/models", headers=wrong)
            assert refused.status_code == 401 and "token" in refused.json()["error"]
        assert client.post("/api/models/m/predict", **asked).status_code == 401
        asked["headers"] |= read
        assert client.post("/api/models/m/predict", **asked).status_code == 200
        assert client.get("/api/models/m", headers=read).json()["may_change"] is False
        assert client.get("/api/models/m", headers=change).json()["may_change"] is True
        for what in ("rollback", "learn", "correct", "queue"):
            assert client.post(f"/api/models/m/{what}", headers=read).status_code == 403
        assert client.get("/health").status_code == client.get("/").status_code == 200
        for host, status in (
            ("pets.example:80", 200),
            ("10.1.2.3:8000", 200),
            ("evil.example", 421),
            ("", 421),
        ):
            assert client.get("/health", headers={"Host": host}).status_code == status, host
        assert ModelFile(path).digest == ModelFile(model_file).digest


def test_a_service_for_others_has_a_token_and_one_on_loopback_needs_none() -> None:
    from safecl.serve.limits import Access

    assert (
        Access.of("127.0.0.1", [], None, None).token
        is None
        is Access.of("::1", [], None, None).token
    )
    assert Access.of("192.168.1.2", [], None, None).token is not None
    assert Access.of("127.0.0.1", [], None, "read-token").token is not None
    for tokens in (("same-token", "same-token"), ("short", None), ("with space in", None)):
        with raises("serve.token.form"):
            Access.of("127.0.0.1", [], *tokens)


def until(found: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    end = time.monotonic() + 30
    while not found():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_file_that_was_changed_elsewhere_is_read_and_a_damaged_one_is_told_until_it_is_whole(
    start: Start, model_file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.safecl"
    path.write_bytes(model_file.read_bytes())
    with start(path) as one:
        before = one.version
        picture = one.pictures("a")[0]
        model = ContinualClassifier.load(path, device="cpu")
        model.rename("a", "z")
        model.save(path)
        until(lambda: one.version != before)
        kept = path.read_bytes()
        get = one.client.get
        assert one.version == ModelFile(path).version
        assert "z" in {label for label, _ in one.ask(picture)["answers"][0]["nearest"]}
        assert get("/health").json() == {"status": "UP"} and "fault" not in one.ask(picture)
        assert "safecl_models_degraded 0\n" in get("/metrics").text
        damaged = "m.safecl is no model file of safecl, or it is damaged (file is not a zip file)."
        gone = "There is no model m.safecl; 'safecl learn FOLDER --model m.safecl' makes one."
        given = {"name": "pictures", "shape": [1], "datatype": "BYTES", "data": [text(picture)]}
        for content, fault in ((b"damaged", damaged), (None, gone)):
            path.unlink() if content is None else path.write_bytes(content)
            until(
                lambda fault=fault: (
                    get("/health").json()
                    == {
                        "status": "DEGRADED",
                        "faults": {"m": fault},
                    }
                )
            )
            said = one.ask(picture)  # the model in use answers on
            assert (
                said["version"] == one.version
                and said["answers"][0]["label"]
                and said["fault"] == fault
            )
            assert one.about["fault"] == get("/api/models").json()["models"][0]["fault"] == fault
            assert get("/v2/health/ready").json()["faults"] == {"m": fault}
            assert get("/v2/models/m").json()["parameters"] == {"fault": fault}
            inferred = one.client.post("/v2/models/m/infer", json={"inputs": [given]}).json()
            assert (
                inferred["parameters"] == {"fault": fault}
                and inferred["model_version"] == one.version
            )
            assert "safecl_models_degraded 1\n" in get("/metrics").text
        path.with_name("whole").write_bytes(kept)
        path.with_name("whole").rename(path)
        until(lambda: get("/health").json() == {"status": "UP"})
        assert one.about["fault"] is None and "fault" not in one.ask(picture)
    told = [line.replace(f"{tmp_path}/", "") for line in capfd.readouterr().err.splitlines()]
    assert told == [
        *(f"m answers as before: {fault}" for fault in (damaged, gone)),
        "m answers from its file again.",
    ]


def test_a_fault_is_told_to_those_who_may_ask_alone(
    start: Start, model_file: Path, tmp_path: Path
) -> None:
    from safecl.serve.limits import Access

    path = tmp_path / "m.safecl"
    path.write_bytes(model_file.read_bytes())
    with start(path, Access.of("127.0.0.1", [], "to-change", "to-read-only")) as one:
        path.write_bytes(b"damaged")
        until(lambda: one.client.get("/health").json() == {"status": "DEGRADED"})
        head = {"Authorization": "Bearer to-read-only"}
        assert "damaged" in one.client.get("/health", headers=head).json()["faults"]["m"]


def test_a_job_whose_model_cannot_be_read_afterwards_says_so(
    start: Start, model_file: Path, tmp_path: Path
) -> None:
    from safecl.serve.answering import Desk

    class Full(Desk):
        """Has room for the first state of a model alone."""

        def _read(self, name: str) -> str:
            if name in self._now and self.file(name).digest != ModelFile(self.paths[name]).digest:
                raise SafeclError(
                    "package.says", sentence=f"{self.paths[name]} does not fit into memory."
                )
            return super()._read(name)

    path = tmp_path / "m.safecl"
    path.write_bytes(model_file.read_bytes())
    with start(path, make_desk=Full) as one:
        before = one.version
        job = one.job("correct", one.taught("a", 1, seed=8))
        said = "m.safecl does not fit into memory."
        assert job["state"] == "done" and job["error"].endswith(f"the old one answers: {said}"), job
        assert one.version == before and one.about["fault"] == said
        assert one.job("queue", {"pictures": [text(one.pictures("a")[0])]})["error"] is None


@pytest.mark.parametrize(("asked", "sent"), [("", False), ("true", True)])
def test_traces_are_sent_only_where_that_is_asked_for(
    asked: str, sent: bool, start: Start, model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the installed version of FastAPI does by itself."""
    from safecl.serve import app

    given: dict[str, Any] = {}
    made = app.FastAPI

    def keep(**options: Any) -> Any:
        given.update(options)
        return made(**options)

    monkeypatch.setattr(app, "FastAPI", keep)
    monkeypatch.setenv(app.TELEMETRY, asked)
    with start(model_file):
        pass
    assert given["telemetry"] == {"auto_configure": sent}


def test_it_tells_that_pictures_have_changed_until_the_model_learns_them(
    start: Start, model_file: Path, tmp_path: Path
) -> None:
    path = tmp_path / "m.safecl"
    path.write_bytes(model_file.read_bytes())
    with start(path) as one:
        images, labels = one.draw("abcd", 10, 9)
        get = one.client.get
        quiet = {"pictures": [text(png(image)) for image in images]}
        dark = [text(png(image // 3)) for image in images]
        ask = "/api/models/m/predict"
        first = one.client.post(ask, json=quiet).json()
        assert "drift" not in first and 'safecl_drift_alarm{model="m"} 0\n' in get("/metrics").text
        said = one.client.post(ask, json={"pictures": dark}).json()["drift"]
        assert "pictures look different from those taught: they are " in said
        assert get("/health").json() == {"status": "UP", "drifts": {"m": said}}
        assert one.about["drift"]["alarm"] and one.about["drift"]["told"] == said
        assert 'safecl_drift_alarm{model="m"} 1\n' in get("/metrics").text
        assert one.client.post(ask, json=quiet).json()["answers"] == first["answers"]
        renamed = ContinualClassifier.load(path, device="cpu")
        renamed.rename("d", "z")  # teaches nothing
        renamed.save(path)
        while (about := one.about)["version"] == first["version"]:
            time.sleep(0.05)
        assert about["drift"]["told"] is not None and "d" not in about["drift"]["affected"]
        labels = [label.replace("d", "z") for label in labels]
        taught = [{"data": data, "label": label} for data, label in zip(dark, labels, strict=True)]
        assert one.job("correct", {"pictures": taught})["state"] == "done"
        assert not one.about["drift"]["alarm"] and get("/health").json() == {"status": "UP"}


def test_sets_are_the_same_by_the_protocol_as_by_the_service(service: Service) -> None:
    pictures = service.pictures("ab", 2)
    data = list(map(text, pictures))
    given = {"name": "pictures", "shape": [4], "datatype": "BYTES", "data": data}
    body = {"inputs": [given], "parameters": {"sets": 0.8, "unknown": 0.1}}
    answer = service.client.post("/v2/models/m/infer", json=body).json()
    found = {one["name"]: one for one in answer["outputs"]}
    own = [service.ask(one, sets=0.8, unknown=0.1)["answers"][0] for one in pictures]
    assert list(map(json.loads, found["set"]["data"])) == [one["set"] for one in own]
    assert found["unknown"]["data"] == [one["unknown"] for one in own]
    plain = service.client.post("/v2/models/m/infer", json={"inputs": [given]}).json()
    assert "set" not in [one["name"] for one in plain["outputs"]]
    for sets in (0, 1, "many", True):
        wrong = service.client.post(
            "/v2/models/m/infer", json=body | {"parameters": {"sets": sets}}
        )
        assert wrong.status_code == 422 and wrong.json()["code"] == "serve.protocol.sets"
