"""``safecl serve``: models that answer, learn and are taught over HTTP, and a page."""

import socket
import webbrowser
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from safecl.classifier.store import ModelFile
from safecl.cli.models import Device
from safecl.cli.terminal import say
from safecl.errors import SafeclError

ALL = "What allows everything; made and shown where one is needed."
Token = Annotated[str | None, typer.Option(envvar="SAFECL_TOKEN", help=ALL)]
ReadToken = Annotated[str | None, typer.Option(envvar="SAFECL_READ_TOKEN", help="What allows to ask, not to change.")]
Host = Annotated[str, typer.Option(help="The address to listen on; any but loopback needs a token.")]


def serve(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL…", help="Model files.")],
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8000,
    token: Token = None,
    read_token: ReadToken = None,
    allow_host: Annotated[list[str] | None, typer.Option(help="Another name that it is reached by.")] = None,
    device: Device = "auto",
    ray: Annotated[bool, typer.Option("--ray", help="Answer by replicas on a Ray cluster (RAY_ADDRESS).")] = False,
    replicas: Annotated[int | None, typer.Option(min=1, help="With --ray: how many; 2 if not given.")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Answer over HTTP, and on a page on which anybody can teach the model.

    Example:  safecl serve pets.safecl   then open http://127.0.0.1:8000
    """
    paths: dict[str, Path] = {}
    for path in models:
        file = ModelFile(path).path.resolve()
        if paths.setdefault(path.stem, file) != file:
            raise SafeclError(f"Two models are called {path.stem}; give one of the files another name.")
    check_installed()
    if replicas is not None and not ray:
        raise SafeclError("--replicas has no effect without --ray; give both.")
    from safecl.serve.limits import Access

    access = Access.of(host, allow_host or [], token, read_token)
    try:
        family, both = socket.AF_INET6 if ":" in host else socket.AF_INET, host == "::" and socket.has_dualstack_ipv6()
        listening = socket.create_server((host, port), family=family, backlog=1024, dualstack_ipv6=both)
    except OSError as error:
        raise SafeclError(f"The service cannot listen on {host}, port {port} ({error.strerror or error}).") from None
    from safecl.serve.app import run

    place = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}/"
    shown = f"#token={access.token}" if access.token not in (None, token) else ""
    said, count = f"Serving {', '.join(paths)} at {place}{shown}", (replicas or 2) if ray else None

    def ready() -> None:
        say(said)
        if open_:
            webbrowser.open(place + shown)

    run(paths, device, access, listening, ready, count)


def check_installed() -> None:
    """What the extra brings is there."""
    if missing := [name for name in ("fastapi", "uvicorn") if find_spec(name) is None]:
        raise SafeclError(f"The service needs {' and '.join(missing)}: pip install 'safecl[serve]'.")


def add_commands(app: typer.Typer) -> None:
    """The command of this file."""
    app.command()(serve)
