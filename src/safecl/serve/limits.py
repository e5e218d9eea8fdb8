"""What is refused before it is read: strangers, other hosts, what is too large, too slow or too much."""

import asyncio
import base64
import binascii
import re
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from safecl.classifier.history import check_rollback
from safecl.classifier.schema import Header
from safecl.errors import SafeclError

MAX_PICTURE = 32 << 20  # bytes
MAX_BODY = {"read": 64 << 20, "change": 192 << 20}  # bytes of a request, by the right that it needs
MAX_HELD, MAX_REQUESTS, MAX_STREAMS = 512 << 20, 512, 128  # bytes of all requests, requests, and streams of events
MAX_WAITING, MAX_JOBS, MAX_SPOOL = 1024, 100, 2 << 30  # requests and jobs that wait, and bytes of pictures of jobs
OURS = "This failed for a reason that is safecl's own; the log of the service has it."
BODY_SECONDS, REQUEST_SECONDS = 30.0, 120.0
OPEN = ("/", "/health", "/v2/health/live", "/v2/health/ready")  # to everybody, as is /page/
ASKING = ("predict", "heat_map", "infer")  # ends of paths that are posted to and change nothing
ADDRESS = re.compile(r"[0-9.]+|\[[0-9a-f:.]+\]")  # a name that nobody can make mean another machine
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff", "referrer-policy": "no-referrer", "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
}  # fmt: skip


class Refused(SafeclError):
    """A request that is not served: the status, and a sentence."""

    def __init__(self, status: int, sentence: str, **headers: str) -> None:
        super().__init__(sentence)
        self.response = JSONResponse({"error": sentence}, status, headers)


def busy() -> Refused:
    return Refused(503, "The service has more to do than it can keep waiting; ask again later.", **{"Retry-After": "1"})


@dataclass(frozen=True)
class Access:
    """Who may ask, and by which names. Without a token everybody who can reach the service may do everything."""

    hosts: frozenset[str] = frozenset(LOOPBACK)
    token: str | None = None
    read_token: str | None = None
    anywhere: bool = False  # it listens on all addresses, so a Host that is an address is its own

    @classmethod
    def of(cls, host: str, more: Sequence[str], token: str | None, read_token: str | None) -> "Access":
        """For a service at ``host``, with ``more`` names; a token is made where one is needed and none is given."""
        name = f"[{host}]" if ":" in host else host.lower()
        if token is None and (name not in LOOPBACK or read_token is not None):
            token = secrets.token_urlsafe(24)
        given = [one for one in (token, read_token) if one is not None]
        if len(set(given)) < len(given) or not all(re.fullmatch("[!-~]{8,}", one) for one in given):
            raise SafeclError("A token has 8 ASCII letters, digits or signs, or more; the two tokens differ.")
        return cls(frozenset({*LOOPBACK, name, *map(str.lower, more)}), token, read_token, host in ("0.0.0.0", "::"))

    def check_host(self, host: str) -> None:
        """A page of another site, whose name was made to mean this machine, has its own name in Host."""
        name = host.lower().partition("]")[0] + "]" if host.startswith("[") else host.lower().partition(":")[0]
        if name not in self.hosts and not (self.anywhere and ADDRESS.fullmatch(name)):
            raise Refused(421, "This service does not answer to that Host; start it with --allow-host NAME.")

    def right(self, authorization: str) -> str:
        """What whoever shows this may do: none, read or change."""
        if self.token is None:
            return "change"
        kind, _, shown = authorization.partition(" ")
        given = shown.strip().encode() if kind.lower() == "bearer" else b""
        read = self.read_token is not None and secrets.compare_digest(given, self.read_token.encode())
        return "change" if secrets.compare_digest(given, self.token.encode()) else "read" if read else "none"


class Gate:
    """Stands before the service: checks who asks, counts what arrives, and limits bytes and time."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app, self.access, self.held = app, access, 0
        self.inside: Counter[bool] = Counter()  # requests, by whether they are endless
        self.requests: Counter[tuple[str, int]] = Counter()  # by route and status

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        visit = _Visit(self, scope, receive, send)
        self.inside[visit.endless] += 1
        try:
            await visit.serve()
        finally:
            self.inside[visit.endless] -= 1
            self.held -= visit.bytes
            # A route is named by its pattern, so that nobody can make names without end.
            self.requests[getattr(scope.get("route"), "path", "none"), visit.status] += 1


class _Visit:
    """One request."""

    def __init__(self, gate: Gate, scope: Scope, receive: Receive, send: Send) -> None:
        self.gate, self.scope, self._receive, self._send = gate, scope, receive, send
        self.bytes, self.status, self.whole = 0, 0, False
        self.until = asyncio.get_running_loop().time() + BODY_SECONDS
        self.endless = scope["path"].endswith("/events")
        self.needs = needed(scope["method"], scope["path"])
        self.most = MAX_BODY.get(self.needs, 0)

    async def serve(self) -> None:
        try:
            self._check({key: value.decode("latin-1") for key, value in reversed(self.scope["headers"])})
            async with asyncio.timeout(None if self.endless else REQUEST_SECONDS):
                await self.gate.app(self.scope, self.receive, self.send)
        except (Refused, TimeoutError) as error:
            if not self.status:
                await (error if isinstance(error, Refused) else busy()).response(self.scope, self.receive, self.send)

    def _check(self, headers: dict[bytes, str]) -> None:
        if self.gate.inside[self.endless] > (MAX_STREAMS if self.endless else MAX_REQUESTS):
            raise busy()
        host, length = headers.get(b"host", ""), headers.get(b"content-length", "0")
        self.gate.access.check_host(host)
        strange = headers.get(b"sec-fetch-site", "none") not in ("same-origin", "none")
        strange |= headers.get(b"origin", f"://{host}").partition("://")[2] != host
        if strange and self.scope["method"] not in ("GET", "HEAD"):
            raise Refused(403, "A page of another site asked for this, which it may not.")
        right = self.gate.access.right(headers.get(b"authorization", ""))
        if self.needs != "none" and right == "none":
            raise Refused(401, "This needs the token: Authorization: Bearer TOKEN.", **{"WWW-Authenticate": "Bearer"})
        if self.needs == "change" and right != "change":
            raise Refused(403, "This token may ask, but not change; use the other one.")
        self.scope["state"] = {**self.scope.get("state", {}), "may_change": right == "change"}
        if not length.isdecimal() or int(length) > self.most:
            raise self._too_large()

    def _too_large(self) -> Refused:
        return Refused(413, f"This takes {self.most >> 20} MB at most; send less at a time.", Connection="close")

    async def receive(self) -> Message:
        if self.whole:  # what comes now is only that the other side has left
            return await self._receive()
        try:
            async with asyncio.timeout_at(self.until):
                message = await self._receive()
        except TimeoutError:
            sentence = f"The request was not here after {BODY_SECONDS:.0f} s; send it faster, or less."
            raise Refused(408, sentence, Connection="close") from None
        size, self.whole = len(message.get("body", b"")), not message.get("more_body", False)
        self.bytes, self.gate.held = self.bytes + size, self.gate.held + size
        if self.bytes > self.most:
            raise self._too_large()
        if self.gate.held > MAX_HELD:
            raise busy()
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message["headers"], *((k.encode(), v.encode()) for k, v in HEADERS.items())]
        await self._send(message)


def check_step(header: Header, step: str) -> None:
    """Refuse to take back another step than who asks has seen to be the last."""
    if check_rollback(header)["id"] != step:
        raise Refused(409, "That is not the last step of the model now; look at its history again.")


def needed(method: str, path: str) -> str:
    """The right that a request needs."""
    if path in OPEN or path.startswith("/page/"):
        return "none"
    asks = method == "POST" and path.rpartition("/")[2] in ASKING
    return "read" if asks or method in ("GET", "HEAD") else "change"


def pictures_of(texts: Sequence[str]) -> list[bytes]:
    """The pictures of base64 texts."""
    found = []
    for i, text in enumerate(texts):
        try:
            found.append(base64.b64decode("".join(text.split()), validate=True))
        except (binascii.Error, ValueError):
            raise Refused(422, f"Picture {i} is not in base64.") from None
        check_size(found[-1], f"Picture {i}")
    return found


def check_size(picture: bytes, name: str) -> None:
    """Refuse a picture of no bytes, or of too many."""
    if not picture:
        raise Refused(422, f"{name} is empty; send the bytes of a picture.")
    if len(picture) > MAX_PICTURE:
        raise Refused(413, f"{name} has more than {MAX_PICTURE >> 20} MB; make it smaller.")
