"""What is refused before it is read: strangers, other hosts, what is too large, too slow or too
much.
"""

import asyncio
import base64
import binascii
import re
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Any, Self

from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from safecl.classifier.modelfile.history import check_rollback
from safecl.classifier.modelfile.schema import Header
from safecl.errors import SafeclError

MAX_PICTURE = 32 << 20  # bytes
MAX_WAITING = 1024  # pictures that wait to be decoded, and requests that wait for an answer
MAX_JOBS = 100  # that wait
MAX_SPOOL = 2 << 30  # bytes of the pictures of jobs
OURS = "This failed for a reason that is safecl's own; the log of the service has it."
OPEN = ("/", "/health", "/v2/health/live", "/v2/health/ready")  # to everybody, as is /page/
ASKING = ("predict", "heat_map", "infer")  # ends of paths that are posted to and change nothing
WHOLE = "file"  # end of paths by which all that a model is leaves the service
HOST = re.compile(r"(\[[^\[\]]+\]|[^\[\]:/?#@\s]+)(:[0-9]*)?")  # a name or an address, and a port
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
HEADERS = {
    "content-security-policy": (
        "default-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
}


@dataclass(frozen=True)
class Limits:
    """What is taken at a time, and for how long it is waited for."""

    read_bytes: int = 64 << 20  # of a request that changes nothing
    change_bytes: int = 192 << 20  # of one that may
    held_bytes: int = 512 << 20  # of all requests
    requests: int = 512
    streams: int = 128  # of events, which are endless
    head_seconds: float = 15.0  # for the head of a request to arrive
    body_seconds: float = 30.0
    request_seconds: float = 120.0  # for the answer to leave

    def bytes_of(self, needs: str) -> int:
        """Of a request that needs this right; one that needs none has no body."""
        return {"read": self.read_bytes, "change": self.change_bytes}.get(needs, 0)


LIMITS = Limits()


class Refused(SafeclError):
    """A request that is not served: the status, and what is wrong."""

    def __init__(
        self, status: int, code: str, headers: Mapping[str, str] | None = None, **fields: Any
    ) -> None:
        super().__init__(code, **fields)
        self.status = status
        self.headers = dict(headers or {})
        self.pictures: Mapping[int, str] = {}

    def of(self, pictures: Mapping[int, str]) -> Self:
        """With what is wrong with each picture at fault, by its place."""
        self.pictures = pictures
        return self


def refused(error: SafeclError, status: int = 422) -> JSONResponse:
    """The answer to a request that ended in an error, which may have a status of its own."""
    told: dict[str, Any] = {"error": str(error), "code": error.code}
    if isinstance(error, Refused):
        told |= {"pictures": error.pictures} if error.pictures else {}
        return JSONResponse(told, error.status, error.headers)
    return JSONResponse(told, status)


def busy() -> Refused:
    return Refused(503, "serve.busy", {"Retry-After": "1"})


@dataclass(frozen=True)
class Access:
    """Who may ask, and by which names. Without a token everybody who can reach the service may do
    everything.
    """

    hosts: frozenset[str] = frozenset(LOOPBACK)
    token: str | None = None
    read_token: str | None = None
    anywhere: bool = False  # it listens on all addresses, so a Host that is an address is its own

    @classmethod
    def of(
        cls, host: str, more: Sequence[str], token: str | None, read_token: str | None
    ) -> "Access":
        """For a service at ``host``, with ``more`` names; a token is made where one is needed and
        none is given.
        """
        name = host_of(f"[{host}]" if ":" in host else host)
        if wrong := [one for one in more if host_of(one) is None or host_of(f"{one}:1") is None]:
            raise SafeclError("serve.host.no-name", host=wrong[0])
        if token is None and (name not in LOOPBACK or read_token is not None):
            token = secrets.token_urlsafe(24)
        given = [one for one in (token, read_token) if one is not None]
        if len(set(given)) < len(given) or not all(re.fullmatch("[!-~]{8,}", one) for one in given):
            raise SafeclError("serve.token.form")
        hosts = frozenset(filter(None, (*LOOPBACK, name, *map(host_of, more))))
        return cls(hosts, token, read_token, host in ("0.0.0.0", "::"))

    def check_host(self, host: str) -> None:
        """A page of another site, whose name was made to mean this machine, has its own name in
        Host.
        """
        name = host_of(host)
        if name not in self.hosts and not (self.anywhere and is_address(name)):
            raise Refused(421, "serve.host.other")

    def right(self, authorization: str) -> str:
        """What whoever shows this may do: none, read or change."""
        if self.token is None:
            return "change"
        kind, _, shown = authorization.partition(" ")
        given = shown.strip().encode() if kind.lower() == "bearer" else b""
        read = self.read_token is not None and secrets.compare_digest(
            given, self.read_token.encode()
        )
        return (
            "change"
            if secrets.compare_digest(given, self.token.encode())
            else "read"
            if read
            else "none"
        )


def host_of(text: str) -> str | None:
    """The name or the address in a Host, in its one spelling and without the port; None where it is
    none.
    """
    found = HOST.fullmatch(text.lower())
    if found is None or not found[1].startswith("["):
        return found and found[1]
    try:
        return f"[{IPv6Address(found[1][1:-1])}]"
    except ValueError:
        return None


def is_address(name: str | None) -> bool:
    """Whether it is an address, which nobody can make mean another machine."""
    try:
        return name is not None and bool(ip_address(name.strip("[]")))
    except ValueError:
        return False


class Gate:
    """Stands before the service: checks who asks, counts what arrives, and limits bytes and time.

    The server beneath it limits heads; it cannot tell requests from streams of events, and knows
    neither bytes nor slow bodies.
    """

    def __init__(self, app: ASGIApp, access: Access, limits: Limits) -> None:
        self.app = app
        self.access = access
        self.limits = limits
        self.held = 0  # bytes of all requests
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
        self.gate = gate
        self.scope = scope
        self._receive = receive
        self._send = send
        self.bytes = 0
        self.status = 0
        self.whole = False
        self.limits = gate.limits
        self.until = asyncio.get_running_loop().time() + self.limits.body_seconds
        self.endless = scope["path"].endswith("/events")
        self.needs = needed(scope["method"], scope["path"])
        self.most = self.limits.bytes_of(self.needs)

    async def serve(self) -> None:
        try:
            self._check(Headers(scope=self.scope))
            async with asyncio.timeout(None if self.endless else self.limits.request_seconds):
                await self.gate.app(self.scope, self.receive, self.send)
        except (Refused, TimeoutError) as error:
            if not self.status:
                answer = refused(error if isinstance(error, Refused) else busy())
                await answer(self.scope, self.receive, self.send)

    def _check(self, headers: Headers) -> None:
        most = self.limits.streams if self.endless else self.limits.requests
        if self.gate.inside[self.endless] > most:
            raise busy()
        host = headers.get("host", "")
        self.gate.access.check_host(host)
        strange = headers.get("sec-fetch-site", "none") not in ("same-origin", "none")
        strange |= headers.get("origin", f"://{host}").partition("://")[2] != host
        if strange and self.scope["method"] not in ("GET", "HEAD"):
            raise Refused(403, "serve.site.other")
        right = self.gate.access.right(headers.get("authorization", ""))
        if self.needs != "none" and right == "none":
            raise Refused(401, "serve.token.needed", {"WWW-Authenticate": "Bearer"})
        if self.needs == "change" and right != "change":
            raise Refused(403, "serve.token.reads")
        may = {"may_read": right != "none", "may_change": right == "change"}
        self.scope["state"] = {**self.scope.get("state", {}), **may}
        if int(headers.get("content-length", "0")) > self.most:
            raise self._too_large()

    def _too_large(self) -> Refused:
        return Refused(
            413, "serve.request.too-large", {"Connection": "close"}, megabytes=self.most >> 20
        )

    async def receive(self) -> Message:
        if self.whole:  # what comes now is only that the other side has left
            return await self._receive()
        try:
            async with asyncio.timeout_at(self.until):
                message = await self._receive()
        except TimeoutError:
            seconds = self.limits.body_seconds
            raise Refused(
                408, "serve.request.slow", {"Connection": "close"}, seconds=seconds
            ) from None
        size = len(message.get("body", b""))
        self.whole = not message.get("more_body", False)
        self.bytes += size
        self.gate.held += size
        if self.bytes > self.most:
            raise self._too_large()
        if self.gate.held > self.limits.held_bytes:
            raise busy()
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [
                *message["headers"],
                *((k.encode(), v.encode()) for k, v in HEADERS.items()),
            ]
        await self._send(message)


def check_step(header: Header, step: str) -> None:
    """Refuse to take back another step than who asks has seen to be the last."""
    if check_rollback(header)["id"] != step:
        raise Refused(409, "serve.step.other")


def needed(method: str, path: str) -> str:
    """The right that a request needs."""
    if path in OPEN or path.startswith("/page/"):
        return "none"
    last = path.rpartition("/")[2]
    asks = method == "POST" and last in ASKING
    looks = method in ("GET", "HEAD") and last != WHOLE
    return "read" if asks or looks else "change"


def pictures_of(texts: Sequence[str]) -> list[bytes]:
    """The pictures of base64 texts."""
    found = []
    for i, text in enumerate(texts):
        try:
            found.append(base64.b64decode("".join(text.split()), validate=True))
        except (binascii.Error, ValueError):
            raise Refused(422, "serve.picture.no-base", place=i) from None
        check_size(found[-1], f"Picture {i}")
    return found


def check_size(picture: bytes, name: str) -> None:
    """Refuse a picture of no bytes, or of too many."""
    if not picture:
        raise Refused(422, "serve.picture.empty", name=name)
    if len(picture) > MAX_PICTURE:
        raise Refused(413, "serve.picture.too-large", name=name, megabytes=MAX_PICTURE >> 20)
