"""A model on a hub on this machine: pushed with what the hub reads, and fetched again."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from safecl.classifier.answers.hub import pull, push
from safecl.classifier.answers.weights import export_timm
from safecl.classifier.classifier import ContinualClassifier
from safecl.classifier.model import Model
from safecl.classifier.modelfile.store import ModelFile
from tests.conftest import raises


class Hub(BaseHTTPRequestHandler):
    """As much of the hub's API as pushing and fetching need: one repository, me/pets, whose files
    are in ``told``.
    """

    protocol_version = "HTTP/1.1"
    told: dict[str, Any]

    @property
    def commit(self) -> str:
        return hashlib.sha1(b"".join(self.told["files"].values())).hexdigest()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        code = 200
        answer = {}
        if self.path == "/api/repos/create":
            self.told["create"] = json.loads(body)
            answer = {"url": f"http://{self.headers['Host']}/me/pets"}
        elif "/preupload/" in self.path:
            answer = {
                "files": [
                    {**file, "uploadMode": "regular", "shouldIgnore": False}
                    for file in json.loads(body)["files"]
                ]
            }
        elif "/commit/" in self.path:
            code = 401 if self.headers["Authorization"] == "Bearer wrong" else 200
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.told["files"][line["value"]["path"]] = base64.b64decode(
                        line["value"]["content"]
                    )
            answer = {
                "commitUrl": f"http://{self.headers['Host']}/me/pets/commit/1",
                "commitOid": "1",
                "success": True,
            }
        self._say(code, json.dumps(answer).encode())

    def do_GET(self) -> None:
        files = self.told["files"]
        name = self.path.partition(f"/me/pets/resolve/{self.commit}/")[2]
        if name:
            self.told["fetched"].append(name)
            self._say(200 if name in files else 404, files.get(name, b""))
            return
        siblings = [{"rfilename": file, "size": len(data)} for file, data in files.items()]
        about = {"id": "me/pets", "sha": self.commit, "siblings": siblings, "private": False}
        tree = [
            {"type": "file", "path": file, "size": len(data), "oid": "1" * 40}
            for file, data in files.items()
        ]
        code = 200 if "/me/pets" in self.path else 404
        self._say(code, json.dumps(tree if "/tree/" in self.path else about).encode())

    do_HEAD = do_GET

    def _say(self, code: int, data: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", f'"{hashlib.sha1(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", self.commit)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """What the hub has been told; its client is pointed to it by its own variables, and has an
    empty cache.
    """
    import huggingface_hub

    Hub.told = {"files": {}, "fetched": []}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_TOKEN", "right")
    # read from HF_HUB_CACHE when the client is imported
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    yield Hub.told
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def file(
    new_model: Callable[..., ContinualClassifier],
    lesson: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A model of three classes."""
    model = new_model("ranpac", pet="ssf", settings={"train.lr": 0.2})
    model.learn(*lesson("abc", 4))
    path = tmp_path_factory.mktemp("models") / "pets.safecl"
    model.save(path)
    return path


def test_a_model_is_pushed_with_its_card_and_what_the_hub_reads(
    hub: dict[str, Any], file: Path, exported: tuple[Path, Path], tmp_path: Path
) -> None:
    assert push(file, "me/pets", private=True).endswith("/me/pets/commit/1")
    assert hub["create"]["name"] == "pets" and "private" in (
        *hub["create"],
        hub["create"].get("visibility"),
    )
    assert hub["files"].keys() == {file.name, "README.md", "config.json"}
    config = json.loads(hub["files"]["config.json"])
    assert config["id2label"] == {"0": "a", "1": "b", "2": "c"}
    head, card = hub["files"]["README.md"].decode().removeprefix("---\n").split("---\n", 1)
    said = yaml.safe_load(head)
    assert said["library_name"] == "safecl" and "| c |" in card
    (measured,) = said["model-index"][0]["results"]
    accuracy = ModelFile(file).header["calibration"]["accuracy"]
    assert measured["metrics"][0]["value"] == pytest.approx(accuracy, abs=1e-4)
    export_timm(Model.open(file), tmp_path / "t.safetensors")
    for path, title in (
        (tmp_path / "t.safetensors", b"# 3 classes"),
        (exported[1], b"# 6 classes"),
    ):
        push(path, "me/pets")
        assert hub["files"][path.name] == path.read_bytes() and title in hub["files"]["README.md"]
    assert len(json.loads(hub["files"]["config.json"])["label2id"]) == 6


def test_what_is_pushed_names_no_folder_of_this_machine(
    hub: dict[str, Any], file: Path, two_blocks: Path, tmp_path: Path
) -> None:
    assert str(two_blocks.parent).encode() in file.read_bytes()
    ContinualClassifier.load(file, device="cpu").save(tmp_path / "frozen.safecl", frozen=True)
    for path in (file, tmp_path / "frozen.safecl"):
        push(path, "me/pets")
        (tmp_path / "pushed.safecl").write_bytes(hub["files"][path.name])
        header = ModelFile(tmp_path / "pushed.safecl").header
        assert header["backbone"]["file"] == two_blocks.name
        assert header["frozen"] == (path != file)
    assert str(two_blocks.parent).encode() not in b"".join(hub["files"].values())
    with raises("backbone.weights.missing"):
        ContinualClassifier.load(tmp_path / "pushed.safecl", device="cpu").predict(path)


def test_a_push_that_fails_is_one_sentence(
    hub: dict[str, Any], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "wrong")
    with raises("push.failed", repo="me/pets", reason=re.compile("401")):
        push(file, "me/pets")
    with raises("push.failed", repo=re.compile("^not a name")):
        push(file, "not a name")


def test_a_model_that_is_pulled_answers_as_it_was_and_learns(
    hub: dict[str, Any], file: Path, lesson: Callable[..., Any], tmp_path: Path
) -> None:
    hub["files"] = {"pets.safecl": file.read_bytes(), "pytorch_model.bin": b"a pickle"}
    place, told = pull("hf:me/pets", tmp_path / "mine.safecl")
    assert place.read_bytes() == file.read_bytes() and told.startswith("3 classes, backbone")
    assert {*hub["fetched"]} == {"pets.safecl"}
    with raises("output.not-ours", path=tmp_path / "mine.safecl"):
        pull("me/pets", tmp_path / "mine.safecl")
    model = ContinualClassifier.from_pretrained("me/pets", device="cpu")
    pictures = lesson("abc", 2, 7)[0]
    np.testing.assert_array_equal(
        model.predict_proba(pictures),
        ContinualClassifier.load(file, device="cpu").predict_proba(pictures),
    )
    model.learn(*lesson("d"))
    assert "d" in model.classes_


def test_without_a_network_the_cache_answers(
    hub: dict[str, Any], file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub["files"] = {"pets.safecl": file.read_bytes()}
    pull("me/pets", tmp_path / "one.safecl")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert pull("me/pets", tmp_path / "two.safecl")[0].read_bytes() == file.read_bytes()
    with raises("pull.failed", source="me/others"):
        pull("me/others", tmp_path / "three.safecl")


def test_what_is_no_model_is_not_fetched(hub: dict[str, Any], file: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.safecl"
    hub["files"] = {"pytorch_model.bin": b"a pickle", "README.md": b"# pets"}
    with raises("pull.none", source="hf:me/pets"):
        pull("hf:me/pets", out)
    with raises("pull.kind", file="pytorch_model.bin"):
        pull("hf:me/pets/pytorch_model.bin", out)
    hub["files"] = {"a.safecl": b"", "b.safecl": file.read_bytes()}
    with raises("pull.several", names="a.safecl, b.safecl"):
        pull("hf:me/pets", out)
    assert pull("hf:me/pets/b.safecl", out, force=True)[0] == out
    with raises("pull.suffix", suffix=".safecl"):
        pull("hf:me/pets/b.safecl", tmp_path / "m.onnx")
    damaged = file.read_bytes()[: file.stat().st_size // 2]
    hub["files"] = {"c.safecl": damaged}
    before = out.read_bytes()
    with pytest.raises(Exception, match=r"c\.safecl"):
        pull("hf:me/pets/c.safecl", out, force=True)
    assert out.read_bytes() == before
