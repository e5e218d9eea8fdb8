"""A download is named only when it is whole, and goes on only if it is still the same file."""

import hashlib
import http.server
import io
import os
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from safecl.errors import SafeclError
from safecl.streams.datasets import DATASETS
from safecl.streams.datasets.dataset import Archive
from safecl.streams.datasets.download import download, fetch


@dataclass
class Site:
    """What the server does. ``cut``: answers stop after so many bytes. ``heeds``: which headers it honours."""

    url: str = ""
    data: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    heeds: tuple[str, ...] = ("Range", "If-Range")
    asked: list[tuple[str | None, str | None]] = field(default_factory=list)

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        span, condition = request.headers.get("Range"), request.headers.get("If-Range")
        self.asked.append((span, condition))
        start = int(span.removeprefix("bytes=").rstrip("-")) if span and "Range" in self.heeds else 0
        if "If-Range" in self.heeds and condition not in (None, *self.headers.values()):
            start = 0
        if start and start >= len(self.data):
            request.send_response(416)
            request.send_header("Content-Range", f"bytes */{len(self.data)}")
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        body = self.data[start:]
        request.send_response(206 if start else 200)
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(self.data) - 1}/{len(self.data)}")
        for name, value in self.headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body[: self.cut])


@pytest.fixture
def site() -> Iterator[Site]:
    here = Site(data=os.urandom(5000), headers={"ETag": '"one"'})

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            here.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=partial(running.serve_forever, poll_interval=0.01), daemon=True).start()
    here.url = f"http://127.0.0.1:{running.server_port}"
    yield here
    running.shutdown()
    running.server_close()


def get(site: Site, folder: Path, name: str = "x.bin", md5: str | None = None) -> bytes:
    fetch(Archive(name, md5, f"{site.url}/{name}"), folder / name)
    return (folder / name).read_bytes()


def break_off(site: Site, folder: Path, after: int = 2000) -> None:
    site.cut = after
    with pytest.raises(SafeclError, match="run the command again"):
        get(site, folder)
    assert not (folder / "x.bin").exists()
    site.cut = None


def other(data: bytes) -> bytes:
    return bytes(byte ^ 255 for byte in data)


@pytest.mark.parametrize(
    "headers", [{"ETag": '"one"'}, {"Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT", "ETag": 'W/"weak"'}]
)
def test_a_download_that_broke_off_goes_on_where_it_stopped(tmp_path: Path, site: Site, headers: dict) -> None:
    site.headers = headers
    break_off(site, tmp_path)
    assert get(site, tmp_path) == site.data
    plain = (None, None)  # to learn whether the file is the same
    assert site.asked == [plain, plain, ("bytes=2000-", next(iter(headers.values())))]
    assert get(site, tmp_path) == site.data and len(site.asked) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["x.bin"]


@pytest.mark.parametrize("heeds", [("Range", "If-Range"), ("Range",), ()])
@pytest.mark.parametrize("length", [5000, 1500, 2000, 9000])
def test_a_file_that_changed_between_two_tries_is_fetched_from_its_beginning(
    tmp_path: Path, site: Site, heeds: tuple[str, ...], length: int
) -> None:
    break_off(site, tmp_path)
    site.data, site.headers, site.heeds = os.urandom(length), {"ETag": '"two"'}, heeds
    assert get(site, tmp_path) == site.data


def test_a_server_that_ignores_ranges_sends_everything_again(tmp_path: Path, site: Site) -> None:
    break_off(site, tmp_path)
    site.heeds = ()
    assert get(site, tmp_path) == site.data


def test_without_a_validator_a_download_starts_over(tmp_path: Path, site: Site) -> None:
    site.headers = {}
    break_off(site, tmp_path)
    site.data = other(site.data)
    assert get(site, tmp_path) == site.data
    assert site.asked[-1] == (None, None)


def test_a_download_that_only_lacks_its_name_is_not_fetched_again(tmp_path: Path, site: Site) -> None:
    break_off(site, tmp_path, after=4999)
    (partial,) = tmp_path.iterdir()
    partial.write_bytes(site.data)
    assert get(site, tmp_path) == site.data and {span for span, _ in site.asked} == {None}


def test_a_download_that_breaks_off_many_times_arrives(tmp_path: Path, site: Site) -> None:
    for _ in range(4):
        break_off(site, tmp_path, after=1000)
    (partial,) = tmp_path.iterdir()
    assert partial.stat().st_size == 4000
    assert get(site, tmp_path) == site.data


def test_a_download_that_is_not_the_published_file_is_removed(tmp_path: Path, site: Site) -> None:
    with pytest.raises(SafeclError, match="md5 differs"):
        get(site, tmp_path, md5="0" * 32)
    assert list(tmp_path.iterdir()) == []
    assert get(site, tmp_path, md5=hashlib.md5(site.data).hexdigest()) == site.data


def zipped() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in "abc":
            archive.writestr(f"{name}.txt", name * 2000)
    return out.getvalue()


def damaged(data: bytes, at: int) -> bytes:
    return data[:at] + other(data[at : at + 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("x.zip", zipped(), damaged(zipped(), 3000)),
        ("x.zip", zipped(), zipped()[:4000]),
        ("x.zip", zipped(), b"<html>log in first</html>" * 99),
    ],
    ids=["zip damaged", "zip cut", "zip is a page"],
)
def test_an_archive_that_is_not_whole_is_not_given_its_name(
    tmp_path: Path, site: Site, name: str, good: bytes, bad: bytes
) -> None:
    site.data = bad
    with pytest.raises(SafeclError, match="not a whole archive"):
        get(site, tmp_path, name)
    assert list(tmp_path.iterdir()) == []
    site.data = good
    assert get(site, tmp_path, name) == good


def test_a_web_page_in_place_of_a_list_is_refused(tmp_path: Path, site: Site) -> None:
    site.data, site.headers = b"<html>log in first</html>", {"Content-Type": "text/html; charset=utf-8"}
    with pytest.raises(SafeclError, match="web page"):
        get(site, tmp_path, "real_train.txt")
    assert not (tmp_path / "real_train.txt").exists()


def test_of_a_file_that_changed_no_part_is_left(tmp_path: Path, site: Site) -> None:
    break_off(site, tmp_path)
    site.data, site.headers = os.urandom(5000), {"ETag": '"two"'}
    break_off(site, tmp_path, after=3000)
    (partial,) = tmp_path.iterdir()
    assert partial.read_bytes() == site.data[:3000]


def test_a_missing_file_and_a_missing_server_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SafeclError, match="cannot be fetched"):
        fetch(Archive("x", url="http://127.0.0.1:9/x"), tmp_path / "x")


def test_what_only_a_person_can_fetch_is_said(tmp_path: Path) -> None:
    with pytest.raises(SafeclError, match=r"needs a person .* vtab\.zip"):
        download(DATASETS["vtab"], tmp_path)
