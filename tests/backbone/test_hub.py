"""Weights from a hub on this machine: whole, broken off, silent, not there."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub
import pytest
import timm
import torch
from safetensors.torch import save_file

from safecl.backbone import hub
from safecl.backbone.load import load_backbone
from safecl.backbone.settings import BackboneSettings
from safecl.errors import SafeclError

NAME = "test_vit.r160_in1k"
CHUNK = 1 << 16  # of ten megabytes that a client keeps, which this file does not have
PATH = f"/timm/{NAME}/resolve/main/model.safetensors"


class Hub(ThreadingHTTPServer):
    """Has the weights of one small network. ``breaks``: how many downloads stop in the middle;
    ``silent``: a download sends half and then nothing.
    """

    daemon_threads = True

    def __init__(self, content: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Requests)
        self.content = content
        self.breaks = 0
        self.silent = False
        self.over = threading.Event()
        self.began: list[int] = []  # where each download began
        self.address = f"http://127.0.0.1:{self.server_port}"


class Requests(BaseHTTPRequestHandler):
    """What the client of the hub asks before and while it downloads a file."""

    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._head(0)

    def do_GET(self) -> None:
        first = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
        rest = self._head(first)
        if self.path != PATH:
            return
        self.server.began.append(first)
        half = rest[: len(rest) // 2]
        if self.server.silent:
            self.wfile.write(half)
            self.server.over.wait(60)
        elif self.server.breaks:
            self.server.breaks -= 1
            self.wfile.write(half)
        else:
            self.wfile.write(rest)
        self.close_connection = True

    def _head(self, first: int) -> bytes:
        """Send the head of an answer; gives what is left of the file from ``first`` on."""
        there = self.path == PATH
        rest = self.server.content[first:] if there else b""
        self.send_response((206 if first else 200) if there else 404)
        if there:
            self.send_header("ETag", '"weights"')
            self.send_header("X-Repo-Commit", "0" * 40)
        else:
            self.send_header("X-Error-Code", "EntryNotFound")
        if first:
            total = len(self.server.content)
            self.send_header("Content-Range", f"bytes {first}-{total - 1}/{total}")
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        return rest


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Of a weight file, as the hub has it: with the classifier."""
    file = tmp_path_factory.mktemp("hub") / "model.safetensors"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        save_file(timm.create_model(NAME).state_dict(), file)
    return file.read_bytes()


@pytest.fixture
def near(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub on this machine, and an empty cache."""
    server = Hub(content)
    thread = threading.Thread(
        daemon=True, target=server.serve_forever, kwargs={"poll_interval": 0.02}
    )
    thread.start()
    template = server.address + "/{repo_id}/resolve/{revision}/{filename}"
    for name, value in {
        "ENDPOINT": server.address,
        "HUGGINGFACE_CO_URL_TEMPLATE": template,
        "HF_HUB_CACHE": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setattr(huggingface_hub.constants, name, value)
    yield server
    server.over.set()
    server.shutdown()
    server.server_close()
    thread.join()


def refused(name: str) -> SafeclError:
    with pytest.raises(SafeclError) as caught:
        hub.fetch(name)
    return caught.value


def test_a_command_fetches_from_the_mirror_that_the_environment_names(
    near: Hub, tmp_path: Path
) -> None:
    own = {"HF_ENDPOINT": near.address, "HF_HUB_CACHE": str(tmp_path / "other")}
    ran = subprocess.run(
        [sys.executable, "-m", "safecl", "backbones", "fetch", NAME],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(f"The weights of {NAME} are at hand")
    assert [file.read_bytes() for file in (tmp_path / "other").rglob("model.safetensors")] == [
        near.content
    ]


def test_what_was_fetched_is_loaded_and_nobody_is_asked_again(near: Hub) -> None:
    assert hub.cached() == [] and hub.cached_file(NAME) is None
    file = hub.fetch(NAME)
    assert file is not None and file.read_bytes() == near.content and near.began == [0]
    near.shutdown()
    assert hub.fetch(NAME) == file and hub.cached() == [NAME]
    backbone = load_backbone(BackboneSettings(name=NAME))
    again = load_backbone(BackboneSettings(name="test_vit", weights=str(file)))
    assert backbone.digest == again.digest


def test_a_download_that_breaks_off_goes_on_where_it_was(
    near: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", CHUNK)
    near.breaks = 1
    file = hub.fetch(NAME)
    assert file is not None and file.read_bytes() == near.content
    half = len(near.content) // 2
    assert near.began == [0, half - half % CHUNK]


def test_a_hub_that_falls_silent_is_given_up_and_leaves_nothing_half_behind(
    near: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.05)
    near.silent = True
    error = refused(NAME)
    assert error.code == "backbone.weights.offline" and error.fields["name"] == NAME
    assert "Timeout" in error.fields["reason"]
    assert hub.cached_file(NAME) is None


@pytest.mark.usefixtures("offline")
def test_offline_the_error_names_what_is_at_hand(tmp_path: Path, content: bytes) -> None:
    assert refused(NAME).fields["cached"] == "nothing"
    other = "vit_small_patch14_dinov2.lvd142m"
    keep(tmp_path / "cache", other, content)
    error = refused(NAME)
    assert error.code == "backbone.weights.offline" and error.fields["cached"] == other


@pytest.mark.usefixtures("near")
def test_weights_that_the_hub_does_not_have_are_an_error_and_no_wait() -> None:
    error = refused("test_vit2.r160_in1k")
    assert error.code == "backbone.weights.offline" and "NotFound" in error.fields["reason"]


def test_of_weights_that_are_not_on_the_hub_nothing_is_fetched() -> None:
    assert hub.fetch("no such network") is None


def keep(cache: Path, name: str, content: bytes) -> None:
    """Weights as the client of the hub keeps them."""
    repository = cache / f"models--timm--{name}"
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    (snapshot / "model.safetensors").write_bytes(content)
