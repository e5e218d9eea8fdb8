"""Whatever is wrong with a request: a status, one sentence, nothing changed, and the next request
works.
"""

import contextlib
import http.client
import io
import json
import queue
import socket
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from safecl.serve import decoding
from safecl.serve.limits import Access, Limits
from tests.conftest import raises

from .conftest import Service, text

M = "/api/models/m"
JSON = {"Content-Type": "application/json"}
PNG = {"Content-Type": "image/png"}


def png(width: int, height: int, data: bytes = b"") -> bytes:
    """A PNG that says it has this size; ``data``: its pixels, compressed."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content))
            + kind
            + content
            + struct.pack(">I", zlib.crc32(kind + content))
        )

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def tiff_of_nothing() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (7000, 7000)).save(file, "TIFF", compression="tiff_lzw")
    return file.getvalue()


def half(picture: bytes) -> bytes:
    return picture[: len(picture) // 2]


def taught(data: str, label: Any = "a", **more: Any) -> bytes:
    return json.dumps({"pictures": [{"data": data, "label": label}], **more}).encode()


def a(service: Service) -> bytes:
    return service.pictures("a", seed=77)[0]


Body = Callable[[Service], Any]
# What is sent (verb, path, headers, body), the status, and words of the sentence.
WRONG: dict[str, tuple[str, str, dict[str, str], Body, int, str]] = {
    "empty": ("POST", f"{M}/predict", PNG, lambda s: b"", 422, "empty"),
    "no image": ("POST", f"{M}/predict", PNG, lambda s: b"no image at all", 422, "not a picture"),
    "half an image": ("POST", f"{M}/predict", PNG, lambda s: half(a(s)), 422, "cannot be read"),
    "bomb of pixels": ("POST", f"{M}/predict", PNG, lambda s: png(40000, 40000), 422, "pixels"),
    "strip": ("POST", f"{M}/predict", PNG, lambda s: png(9000, 2), 422, "strip"),
    "bomb of compression": (
        "POST",
        f"{M}/predict",
        PNG,
        lambda s: png(6000, 6000, zlib.compress(bytes(10**8))),
        422,
        "cannot be read",
    ),
    "eps": (
        "POST",
        f"{M}/predict",
        PNG,
        lambda s: b"%!PS-Adobe-3.0 EPSF-3.0\n",
        422,
        "not a picture",
    ),
    "svg": (
        "POST",
        f"{M}/predict",
        PNG,
        lambda s: b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        422,
        "not a picture",
    ),
    "no type": ("POST", f"{M}/predict", {}, a, 415, "image/jpeg"),
    "multipart": (
        "POST",
        f"{M}/predict",
        {"Content-Type": "multipart/form-data; boundary=x"},
        a,
        415,
        "image/jpeg",
    ),
    "form": (
        "POST",
        f"{M}/learn",
        {"Content-Type": "application/x-www-form-urlencoded"},
        a,
        422,
        "body",
    ),
    "too large": ("POST", f"{M}/predict", PNG, lambda s: bytes(33 << 20), 413, "32 MB"),
    "far too large": ("POST", f"{M}/predict", PNG, lambda s: bytes(65 << 20), 413, "64 MB at most"),
    "endless": (
        "POST",
        f"{M}/predict",
        PNG,
        lambda s: (bytes(1 << 20) for _ in range(70)),
        413,
        "64 MB at most",
    ),
    "broken JSON": ("POST", f"{M}/predict", JSON, lambda s: b'{"pictures": [', 422, "JSON"),
    "JSON of an array": ("POST", f"{M}/predict", JSON, lambda s: b"[]", 422, "not as it should be"),
    "deep JSON": ("POST", f"{M}/learn", JSON, lambda s: b"[" * 100_000, 4, "body"),
    "deep JSON asked": ("POST", f"{M}/predict", JSON, lambda s: b"[" * 100_000, 422, "recursion"),
    "not UTF-8": ("POST", f"{M}/learn", JSON, lambda s: b'{"pictures": "\xff"}', 4, "body"),
    "huge number": (
        "POST",
        f"{M}/queue",
        JSON,
        lambda s: b'{"count": 1' + b"0" * 5000 + b"}",
        4,
        "",
    ),
    "no pictures": ("POST", f"{M}/predict", JSON, lambda s: b'{"pictures": []}', 422, "at least 1"),
    "10,000 items": (
        "POST",
        f"{M}/predict",
        JSON,
        lambda s: json.dumps({"pictures": ["AAAA"] * 10_000}).encode(),
        422,
        "most 256",
    ),
    "10,000 lessons": (
        "POST",
        f"{M}/learn",
        JSON,
        lambda s: json.dumps({"pictures": [{"data": "AAAA", "label": "a"}] * 10_000}).encode(),
        422,
        "at most 4096",
    ),
    "another key": (
        "POST",
        f"{M}/learn",
        JSON,
        lambda s: taught(text(a(s)), path="/etc/passwd"),
        422,
        "path",
    ),
    "no base64": (
        "POST",
        f"{M}/learn",
        JSON,
        lambda s: taught("!!!"),
        422,
        "Picture 0 is not in base64",
    ),
    "empty base64": ("POST", f"{M}/learn", JSON, lambda s: taught(""), 422, "Picture 0 is empty"),
    "lesson of no image": (
        "POST",
        f"{M}/learn",
        JSON,
        lambda s: taught(text(b"none")),
        422,
        "cannot be read",
    ),
    "path as a label": (
        "POST",
        f"{M}/learn",
        JSON,
        lambda s: taught(text(a(s)), "../../x"),
        422,
        "slash",
    ),
    "control character": (
        "POST",
        f"{M}/correct",
        JSON,
        lambda s: taught(text(a(s)), "a\x1b[2J"),
        422,
        "control",
    ),
    "empty label": (
        "POST",
        f"{M}/correct",
        JSON,
        lambda s: taught(text(a(s)), ""),
        422,
        "needs a name",
    ),
    "label twice": (
        "POST",
        f"{M}/learn",
        JSON,
        lambda s: taught(text(a(s)), "A"),
        422,
        "differ only in spelling",
    ),
    "label that looks like one": (
        "POST",
        f"{M}/correct",
        JSON,
        lambda s: taught(text(a(s)), "\u0430"),
        422,
        "did you mean 'a'?",
    ),
    "label of a list": (
        "POST",
        f"{M}/learn",
        JSON,
        lambda s: taught(text(a(s)), ["a"]),
        422,
        "label",
    ),
    "no label": ("POST", f"{M}/learn", JSON, lambda s: taught(text(a(s)), None), 422, "label"),
    "long session name": (
        "POST",
        f"{M}/learn",
        JSON,
        lambda s: taught(text(a(s)), name="n" * 500),
        422,
        "characters",
    ),
    "two labels": (
        "POST",
        f"{M}/learn",
        JSON,
        lambda s: json.dumps(
            {"pictures": [{"data": text(a(s)), "label": c} for c in "ab"]}
        ).encode(),
        422,
        "two",
    ),
    "unknown of 2": ("POST", f"{M}/predict?unknown=2", PNG, a, 422, "unknown"),
    "unknown of nan": ("POST", f"{M}/predict?unknown=nan", PNG, a, 422, "unknown"),
    "other model": ("POST", "/api/models/other/predict", PNG, a, 404, "no such model"),
    "path as a model": ("GET", "/api/models/..%2f..%2fetc%2fpasswd", {}, lambda s: None, 404, "."),
    "NUL as a model": ("GET", "/api/models/m%00.safecl", {}, lambda s: None, 404, "no such model"),
    "path as a page": ("GET", "/page/..%2fapp.py", {}, lambda s: None, 404, "."),
    "path as a job": ("DELETE", "/api/jobs/..%2f..%2fm.safecl", {}, lambda s: None, 404, "."),
    "no job": ("GET", "/api/jobs/0123/events", {}, lambda s: None, 404, "no such job"),
    "wrong verb": ("PUT", f"{M}/predict", PNG, a, 405, "verb"),
    "delete of a model in use": ("DELETE", M, {}, lambda s: None, 405, "verb"),
    "other Host": (
        "GET",
        "/api/models",
        {"Host": "evil.example"},
        lambda s: None,
        421,
        "--allow-host",
    ),
    "Host like ours": (
        "GET",
        "/api/models",
        {"Host": "127.0.0.1.evil.example"},
        lambda s: None,
        421,
        "--allow-host",
    ),
    "other Origin": (
        "POST",
        f"{M}/rollback",
        {"Origin": "http://evil.example"},
        lambda s: b"",
        403,
        "another site",
    ),
    "other site": (
        "POST",
        f"{M}/rollback",
        {"Sec-Fetch-Site": "cross-site"},
        lambda s: b"",
        403,
        "another site",
    ),
    "protocol of another type": (
        "POST",
        "/v2/models/m/infer",
        JSON,
        lambda s: b'{"inputs": 7}',
        422,
        "inputs",
    ),
    "other version": ("GET", "/v2/models/m/versions/0", {}, lambda s: None, 404, "no such version"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_bad_request_gets_a_sentence_and_changes_nothing(what: str, service: Service) -> None:
    verb, path, headers, body, status, words = WRONG[what]
    before = service.path.read_bytes()
    jobs = len(service.jobs.all)
    good = service.pictures("b")[0]
    try:
        answer = service.client.request(verb, path, headers=headers, content=body(service))
    except httpx.TransportError:
        # A client that still sends may see the end of the connection first.
        assert what in ("endless", "far too large")
    else:
        assert answer.status_code == status or answer.status_code // 100 == status, (
            answer.status_code,
            answer.text,
        )
        error = answer.json()["error"]
        assert (
            words in error and error[-1] in ".?" and "Traceback" not in error and len(error) < 600
        ), error
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert service.ask(good)["answers"][0]["label"]
    assert len(service.jobs.all) == jobs and service.path.read_bytes() == before


Limited = Callable[..., Service]


@pytest.fixture
def limited(start: Any, model_file: Path, tmp_path: Path) -> Iterator[Limited]:
    """``limited(body_seconds=0.3)``: a service of its own with such limits."""
    with contextlib.ExitStack() as stack:

        def begin(**limits: Any) -> Service:
            path = tmp_path / "-".join(limits) / "m.safecl"
            path.parent.mkdir()
            path.write_bytes(model_file.read_bytes())
            service: Service = stack.enter_context(start(path, limits=Limits(**limits)))
            return service

        yield begin


def talk(service: Service, data: bytes, wait: float = 5) -> bytes:
    """What the service says to bytes, until it closes or ``wait`` seconds are over."""
    url = service.client.base_url
    with socket.create_connection((url.host, url.port), timeout=wait) as line:
        line.sendall(data)
        found = b""
        try:
            while part := line.recv(65536):
                found += part
        except TimeoutError:
            return found + b" (open)"
        return found


STRANGE_HOSTS = (
    "",
    ":8000",
    "evil.example",
    "127.0.0.1.evil.example",
    "127.0.0.1:80:evil",
    "localhost:evil.example",
    "localhost.evil",
    "[::1].evil",
    "[::1]evil",
    "[::1]:80@evil",
    "[::1]:evil",
    "[::1",
    "::1",
    "::1:8000",
    "[]",
    "[::1]]",
    "[[::1]]",
    "[1.2.3.4]",
    "evil@localhost",
    "localhost@evil",
    "localhost#evil",
    "localhost/evil",
    "localhost?evil",
    "localhost evil",
    "localhost,evil",
    "localhost\t.evil",
    "http://localhost",
    "[evil]",
    "[::2]",
    "2130706433",
    "0177.0.0.1",
    "127.1",
    "127.0.0.1.",
)


def test_only_the_names_of_the_service_are_let_in(service: Service) -> None:
    request = "GET /api/models HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n"
    for host in STRANGE_HOSTS:
        assert talk(service, request.format(host).encode())[9:12] in (b"421", b"400"), host
    assert (
        talk(service, b"GET /api/models HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n")[9:12]
        == b"400"
    )
    for host in (
        "127.0.0.1",
        "127.0.0.1:1",
        "LocalHost:8000",
        "localhost:",
        "[::1]",
        "[::1]:80",
        "[0:0::0:1]:80",
    ):
        assert talk(service, request.format(host).encode())[9:12] == b"200", host


def test_a_service_on_all_addresses_answers_to_addresses_and_to_the_names_it_was_given() -> None:
    access = Access.of("0.0.0.0", ["Pets.example"], "a-long-token", None)
    for host in (
        "10.1.2.3:8000",
        "[fe80::1]",
        "[::ffff:1.2.3.4]:80",
        "pets.EXAMPLE:80",
        "localhost",
    ):
        access.check_host(host)
    for host in (
        *STRANGE_HOSTS,
        "...",
        "1.2.3",
        "1.2.3.4.5",
        "999.1.2.3",
        "10.1.2.3.evil",
        "[fe80::1].evil",
    ):
        if host != "[::2]":  # an address
            with raises("serve.host.other"):
                access.check_host(host)
    for name in ("http://pets.example", "pets.example:80", "*.example/", "", "[::1"):
        with raises("serve.host.no-name", host=name):
            Access.of("127.0.0.1", [name], None, None)


def test_half_a_request_and_a_slow_one_are_ended(limited: Limited) -> None:
    service = limited(body_seconds=0.3, head_seconds=0.3)
    head = f"POST {M}/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: image/png\r\n"
    assert b" 408 " in talk(service, f"{head}Content-Length: 1000\r\n\r\nabc".encode())
    assert talk(service, head[:40].encode()) == b""  # closed, before it has asked anything
    assert b" 400 " in talk(service, b"nonsense\r\n\r\n")
    assert b" 400 " in talk(
        service, f"{head}Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd".encode()
    )
    for wrong in ("abc", "-4", "4.0", "²"):
        assert b" 400 " in talk(service, f"{head}Content-Length: {wrong}\r\n\r\nabcd".encode())
    assert b" 413 " in talk(service, f"{head}Content-Length: {1 << 40}\r\n\r\n".encode())
    url = service.client.base_url
    with socket.create_connection(
        (url.host, url.port)
    ) as line:  # and one that leaves in the middle
        line.sendall(f"{head}Content-Length: 1000\r\n\r\nabc".encode())
    assert service.ask(service.pictures("a")[0])["answers"][0]["label"]


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_a_client_that_hangs_up_leaves_nothing_in_the_log(
    start: Any, model_file: Path, tmp_path: Path, reset: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """In the head, in the body of each kind, before the answer and in a stream of events."""
    path = tmp_path / "m.safecl"
    path.write_bytes(model_file.read_bytes())
    with start(path) as service:
        hang_up(service, reset)
    assert capfd.readouterr().err == ""


def hang_up(service: Service, reset: bool) -> None:
    picture = service.pictures("a")[0]
    url = service.client.base_url
    asked = json.dumps({"pictures": [text(picture)]}).encode()
    heads = [f"{M}/predict image/png", f"{M}/predict application/json", f"{M}/heat_map image/png"]
    heads += [
        f"{M}/learn application/json",
        f"{M}/queue application/json",
        "/v2/models/m/infer application/json",
    ]
    requests = [b"", b"GET /api/mod"]
    for path, kind in map(str.split, heads):
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\n"
        requests += [
            f"{head}Content-Length: 1000\r\n\r\n".encode() + sent
            for sent in (b"", b"{", picture[:500])
        ]
        requests.append(f'{head}Transfer-Encoding: chunked\r\n\r\n5\r\n{{"pic'.encode())
    for path, body in ((f"{M}/predict", asked), ("/api/models", b"")):
        head = (
            f"{'POST' if body else 'GET'} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type:"
            " application/json\r\n"
        )
        requests.append(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    with service.held():
        job = service.client.post(f"{M}/queue", headers=JSON, content=asked).json()["job"]["id"]
        requests.append(f"GET /api/jobs/{job}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        for request in requests:
            with socket.create_connection((url.host, url.port)) as line:
                line.sendall(request)
                if b"events" in request:
                    line.recv(10)
                time.sleep(0.02)
                if reset:
                    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert service.ask(picture)["answers"][0]["label"]
    assert service.ended(job)["state"] == "done"
    # who asks this
    while service.client.get("/metrics").text.count("safecl_requests_inside 1\n") != 1:
        time.sleep(0.05)


def test_half_a_request_after_a_whole_one_is_ended(limited: Limited) -> None:
    service = limited(head_seconds=0.5)
    url = service.client.base_url
    whole = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with socket.create_connection((url.host, url.port), timeout=3) as line:
        for _ in range(2):
            line.sendall(whole)
            answer = http.client.HTTPResponse(line)  # head and body may come apart
            answer.begin()
            assert answer.status == 200 and answer.read() == b'{"status":"UP"}'
        began = time.monotonic()
        with pytest.raises(OSError):  # not a time limit: a slow trickle is ended, too
            while time.monotonic() < began + 5:
                line.sendall(b"G" if time.monotonic() - began < 0.1 else b"E")
                time.sleep(0.1)
        assert time.monotonic() < began + 5


def test_a_refusal_while_the_body_arrives_keeps_its_status(limited: Limited) -> None:
    service = limited(change_bytes=1000, body_seconds=0.3)
    full = limited(held_bytes=10)
    head = f"POST {M}/learn HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    large = service.client.post(f"{M}/learn", headers=JSON, content=(b" " * 400 for _ in range(4)))
    assert large.status_code == 413 and "at most" in large.json()["error"], large.text
    assert full.client.post(f"{M}/learn", headers=JSON, content=b" " * 40).status_code == 503
    assert b" 408 " in talk(service, f"{head}Content-Length: 100\r\n\r\n{{".encode())


def test_streams_of_events_leave_room_for_requests(limited: Limited) -> None:
    service = limited(streams=2, requests=1)
    with service.held(), contextlib.ExitStack() as open_:
        body = {"pictures": [text(a(service))], "count": 1}
        job = service.client.post(f"{M}/queue", json=body).json()["job"]["id"]
        streams = [service.client.stream("GET", f"/api/jobs/{job}/events") for _ in range(2)]
        lines = [open_.enter_context(stream).iter_lines() for stream in streams]
        assert [next(one) for one in lines] == ["event: progress"] * 2
        assert service.client.get("/health").status_code == 200
        assert service.client.get(f"/api/jobs/{job}/events").status_code == 503
    assert service.ended(job)["state"] == "done"


def test_a_pool_that_cannot_start_a_process_does_so_later(monkeypatch: pytest.MonkeyPatch) -> None:
    start = decoding._start
    good = png(8, 8, zlib.compress((b"\0" + bytes(24)) * 8))

    def none() -> Any:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(decoding, "_start", none)
    pool = decoding.Decoders(1, 8)
    try:
        with pytest.raises(queue.Full):
            pool.submit([good], 4, 4).result(10)
        monkeypatch.setattr(decoding, "_start", start)
        (view,) = pool.submit([good], 4, 4).result(60)
        assert not isinstance(view, str) and view.shape == (4, 4, 3)
    finally:
        pool.close()


def test_a_picture_that_takes_too_long_costs_itself_alone() -> None:
    pool = decoding.Decoders(1, 8)
    bomb = tiff_of_nothing()
    assert len(bomb) < 1 << 20
    try:
        good = png(8, 8, zlib.compress((b"\0" + bytes(24)) * 8))
        (view,) = pool.submit([good], 4, 4).result(60)
        assert not isinstance(view, str) and view.shape == (4, 4, 3)
        (huge,) = pool.submit([bomb], 4, 4).result(60)
        # 49 million pixels are allowed
        assert not isinstance(huge, str) and huge.shape == (
            4,
            4,
            3,
        )
        found = pool.submit([good, b"", good], 4, 4).result(60)
        assert [isinstance(one, str) for one in found] == [False, True, False]
    finally:
        pool.close()


def test_a_process_that_dies_at_a_picture_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(decoding.__file__).parents[2]))
    pool = decoding.Decoders(1, 8)
    good = png(8, 8, zlib.compress((b"\0" + bytes(24)) * 8))
    ask = decoding._ask

    def killing(process: Any, data: bytes, size: int, resize: int) -> Any:
        if data == b"killer":
            process.kill()
        return ask(process, data, size, resize)

    monkeypatch.setattr(decoding, "_ask", killing)
    try:
        found = pool.submit([good, b"killer", good], 4, 4).result(60)
        assert [isinstance(one, str) for one in found] == [False, True, False] and found[
            1
        ] == decoding.KILLED
    finally:
        pool.close()


def failed(error: Exception) -> Any:
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


@pytest.mark.parametrize("limit", ["requests", "held_bytes"])
def test_more_than_is_taken_at_a_time_is_told_to_come_back(limit: str, limited: Limited) -> None:
    service = limited(**{limit: 0})
    refused = service.client.post(f"{M}/predict", content=service.pictures("a")[0], headers=PNG)
    assert refused.status_code == 503 and refused.headers["retry-after"] == "1"


def test_more_than_can_wait_is_told_to_come_back(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safecl.serve import jobs

    picture = service.pictures("a")[0]
    for most in ("MAX_JOBS", "MAX_SPOOL"):
        monkeypatch.setattr(jobs, most, 0)
        assert (
            service.client.post(f"{M}/queue", json={"pictures": [text(picture)]}).status_code == 503
        )
        monkeypatch.undo()
    monkeypatch.setattr(service.desk._decoders, "submit", lambda *_: failed(queue.Full()))
    assert service.client.post(f"{M}/predict", content=picture, headers=PNG).status_code == 503
    monkeypatch.undo()
    time.sleep(0.05)
    assert service.ask(picture)["answers"][0]["label"]
