"""``safecl serve``: models that answer, learn and are taught over HTTP, and a page."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from safecl.cli.models import Device, opened
from safecl.cli.terminal import say
from safecl.errors import SafeclError
from safecl.lines import naming

Token = Annotated[
    str | None,
    typer.Option(envvar="SAFECL_TOKEN", help="What allows all; made and shown if needed."),
]
ReadToken = Annotated[
    str | None, typer.Option(envvar="SAFECL_READ_TOKEN", help="What allows to ask, not to change.")
]


def serve(
    models: Annotated[
        list[Path],
        typer.Argument(metavar="MODEL…", help="Model files; one that is not there is made there."),
    ],
    host: Annotated[
        str, typer.Option(help="To listen on; any but loopback needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8000,
    token: Token = None,
    read_token: ReadToken = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Another name that it is reached by.")
    ] = None,
    device: Device = "auto",
    ray: Annotated[
        bool, typer.Option("--ray", help="Answer by replicas on a Ray cluster (RAY_ADDRESS).")
    ] = False,
    replicas: Annotated[
        int | None, typer.Option(min=1, help="With --ray: how many; 2 if not given.")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Answer over HTTP, and on a page on which anybody can teach the model.

    Example:  safecl serve pets.safecl   then open http://127.0.0.1:8000
    """
    paths: dict[str, Path] = {}
    new = list[str]()
    for path in models:
        file = place_of(path)
        if not file.exists():
            new.append(path.stem)
        if paths.setdefault(path.stem, file) != file:
            raise SafeclError("command.serve.same-name", stem=path.stem)
    check_installed()
    if replicas is not None and not ray:
        raise SafeclError("command.serve.replicas-idle")
    if ray and new:
        raise SafeclError("command.serve.new-replicas", stem=new[0])
    import socket
    import webbrowser

    from safecl.serve.limits import Access

    access = Access.of(host, allow_host or [], token, read_token)
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        both = host == "::" and socket.has_dualstack_ipv6()
        listening = socket.create_server(
            (host, port), family=family, backlog=1024, dualstack_ipv6=both
        )
    except OSError as error:
        raise SafeclError(
            "command.serve.cannot-listen", host=host, port=port, reason=error.strerror or error
        ) from None
    from safecl.serve.app import open_service

    place = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}/"
    shown = f"{place}#token={access.token}" if access.token not in (None, token) else place
    service = open_service(paths, device, access, (replicas or 2) if ray else None)
    say(f"Serving {', '.join(paths)} at {shown}")
    if new:
        say(f"{naming(new)}: nothing is learned yet; the page there teaches the first classes.")
    if open_ and not webbrowser.open(shown):
        say("Note: no browser can be opened here; open that address in one.", err=True)
    service.run(sockets=[listening])


def place_of(path: Path) -> Path:
    """Where a model is, or will be once its first classes are taught."""
    from safecl.classifier.modelfile.place import check_path
    from safecl.classifier.modelfile.store import SUFFIX

    if path.suffix.lower() != SUFFIX or path.expanduser().exists():
        return opened(path).path.resolve()
    check_path(path)
    return path.expanduser().resolve()


def check_installed() -> None:
    """What the extra brings is there."""
    if missing := [name for name in ("fastapi", "uvicorn") if find_spec(name) is None]:
        raise SafeclError("command.serve.not-installed", missing=" and ".join(missing))
