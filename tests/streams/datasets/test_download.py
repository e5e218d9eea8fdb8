"""A download gets its name only when it is whole and what was published."""

import hashlib
import http.server
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from safecl.streams.datasets import DATASETS
from safecl.streams.datasets.dataset import Archive
from safecl.streams.datasets.download import download, fetch
from tests.conftest import raises


@dataclass
class Site:
    """What the server does. ``cut``: answers stop after so many bytes. ``asked``: how often.

    ``mark``: the ETag of the file, by which parts of it may be asked for; ``sent``: all bytes.
    ``silent``: then nothing more comes, and nobody hangs up, until ``over``.
    """

    url: str = ""
    data: bytes = b""
    kind: str = "application/octet-stream"
    cut: int | None = None
    asked: int = 0
    mark: str = ""
    sent: int = 0
    silent: bool = False
    over: threading.Event = field(default_factory=threading.Event)

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        self.asked += 1
        known = self.mark and request.headers.get("If-Range") == self.mark
        begun = int(request.headers["Range"][len("bytes=") : -1]) if known else 0
        if begun > len(self.data):
            request.send_error(416)
            return
        request.send_response(206 if begun else 200)
        request.send_header("Content-Type", self.kind)
        request.send_header("Content-Length", str(len(self.data) - begun))
        if self.mark:
            request.send_header("ETag", self.mark)
        request.end_headers()
        rest = self.data[begun : self.cut]
        self.sent += len(rest)
        request.wfile.write(rest)
        if self.silent:
            self.over.wait(60)


@pytest.fixture
def site() -> Iterator[Site]:
    here = Site(data=os.urandom(5000))

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            here.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=partial(running.serve_forever, poll_interval=0.01), daemon=True).start()
    here.url = f"http://127.0.0.1:{running.server_port}"
    yield here
    here.over.set()
    running.shutdown()
    running.server_close()


def get(site: Site, folder: Path, name: str = "x.bin", md5: str | None = None) -> bytes:
    fetch(Archive(name, md5, f"{site.url}/{name}"), folder / name)
    return (folder / name).read_bytes()


def test_a_download_that_broke_off_leaves_nothing_and_one_that_is_there_is_not_fetched_again(
    tmp_path: Path, site: Site
) -> None:
    site.cut = 2000
    with raises("dataset.download.failed", error=re.compile("got only 2000 out of 5000 bytes")):
        get(site, tmp_path)
    assert list(tmp_path.iterdir()) == []
    site.cut = None
    assert get(site, tmp_path) == site.data == get(site, tmp_path) and site.asked == 2
    assert [path.name for path in tmp_path.iterdir()] == ["x.bin"]


def test_a_download_that_broke_off_resumes(tmp_path: Path, site: Site) -> None:
    site.mark = '"first"'
    site.cut = 2000
    with raises("dataset.download.failed", error=re.compile("got only 2000 out of 5000 bytes")):
        get(site, tmp_path)
    site.cut = None
    said: list[tuple[str, int, int | None]] = []
    fetch(
        Archive("x.bin", hashlib.md5(site.data).hexdigest(), f"{site.url}/x.bin"),
        tmp_path / "x.bin",
        shown=lambda *what: said.append(what),
    )
    assert (tmp_path / "x.bin").read_bytes() == site.data and site.sent == 5000
    assert said[-1] == ("x.bin", 5000, 5000)
    assert [path.name for path in tmp_path.iterdir()] == ["x.bin"]


def test_a_download_of_a_file_that_has_changed_starts_over(tmp_path: Path, site: Site) -> None:
    site.mark = '"first"'
    site.cut = 2000
    with raises("dataset.download.failed"):
        get(site, tmp_path)
    site.mark = '"second"'
    site.cut = None
    site.data = os.urandom(4000)
    assert get(site, tmp_path) == site.data


def test_a_beginning_longer_than_the_file_starts_over(tmp_path: Path, site: Site) -> None:
    site.mark = '"first"'
    (tmp_path / "x.bin.partial").write_bytes(b"x" * 6000)
    (tmp_path / "x.bin.mark").write_text(site.mark)
    assert get(site, tmp_path) == site.data


def test_a_download_that_is_not_the_published_file_is_removed(tmp_path: Path, site: Site) -> None:
    with raises("dataset.download.checksum"):
        get(site, tmp_path, md5="0" * 32)
    assert list(tmp_path.iterdir()) == []
    assert get(site, tmp_path, md5=hashlib.md5(site.data).hexdigest()) == site.data


def test_a_web_page_in_place_of_a_list_is_refused(tmp_path: Path, site: Site) -> None:
    site.data = b"<html>log in first</html>"
    site.kind = "text/html; charset=utf-8"
    with raises("dataset.download.web-page"):
        get(site, tmp_path, "real_train.txt")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_server_is_one_sentence(tmp_path: Path) -> None:
    with raises("dataset.download.failed"):
        fetch(Archive("x", url="http://127.0.0.1:9/x"), tmp_path / "x")


def test_a_server_that_falls_silent_is_given_up(tmp_path: Path, site: Site) -> None:
    site.cut = 2000
    site.silent = True
    with raises("dataset.download.failed", url=f"{site.url}/x.bin"):
        fetch(Archive("x.bin", url=f"{site.url}/x.bin"), tmp_path / "x.bin", silence=0.1)
    assert list(tmp_path.iterdir()) == []


def test_what_only_a_person_can_fetch_is_said(tmp_path: Path) -> None:
    with raises("dataset.download.by-hand", fetch=re.compile(r"vtab\.zip")):
        download(DATASETS["vtab"], tmp_path)
