"""The service at work: it listens until it is told to stop."""

import asyncio
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from safecl.serve.app import make_app
from safecl.serve.jobs import Jobs
from safecl.serve.limits import Access, Gate

HEAD_SECONDS = 15.0  # for the head of the first request of a connection to arrive
STOP_SECONDS = 10  # for requests that are being answered when the service stops


class Patient(H11Protocol):
    """HTTP/1.1; a connection on which nothing is asked is closed."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(HEAD_SECONDS, lambda: None if self.cycle is not None else transport.close())


def run(
    paths: Mapping[str, Path],
    device: str,
    access: Access,
    listening: socket.socket,
    ready: Callable[[], None],
    replicas: int | None = None,
) -> None:
    """Answer, and learn, until SIGINT or SIGTERM; ``ready`` is called when requests are taken.

    ``replicas``: answer by so many on a Ray cluster.
    """
    desk: Any
    if replicas is not None:
        from safecl.serve.cluster import Replicas

        desk = Replicas(paths, device, replicas)
    else:
        from safecl.serve.answering import Desk

        desk = Desk(paths, device)
    server = make_server(make_app(desk, Jobs(paths, device, desk.reload), access))
    ready()
    server.run(sockets=[listening])


def make_server(app: Gate) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            app, http=Patient, ws="none", log_level="warning", access_log=False, server_header=False,
            timeout_graceful_shutdown=STOP_SECONDS, h11_max_incomplete_event_size=32768,
        )
    )  # fmt: skip
