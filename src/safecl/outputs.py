"""Writing where a person says: which file that is, who may change it now, and what may be replaced.

Every command calls ``check_output`` before anything slow, and ``write_output`` at the end, which
checks again under the file's lock. Model files have ``replaceable`` and ``write_model`` in
classifier/modelfile/place.py.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

from safecl.atomic import exclusive, write_bytes
from safecl.errors import Busy, SafeclError

# How the first bytes of our own files look, by kind. A new kind of output is one more line.
KINDS = {
    "page": rb'<meta name="generator" content="safecl',
    # the first name has quotes without need, the second has none
    "csv": (rb'\A"[^"\n]*",(?!"[^",\n]*"[,\n])'),
    "tex": rb"\A(% .*\n)?\\begin\{tabular\}",
    "md": rb"\A\| ",
    "svg": rb"\A<\?xml[^\x00]*<svg",
    "png": rb"\A\x89PNG\r\n",
    "onnx": rb"\A\x08[\x00-\x7f]\x12\x06safecl",
    "safetensors": (
        rb'(?s)\A.{8}\{"__metadata__":\{.*"(safecl|classes|licence|card|settings|transform|calibration)":'
    ),
}
HEAD = 4096  # bytes by which a file is recognised
# locks that this very call has
_held: ContextVar[frozenset[Path]] = ContextVar("held", default=frozenset())


def real(path: str | Path) -> Path:
    """The file that ``path`` means to write: ~ and a link are followed; anything else stays as it
    is spelled.
    """
    path = Path(path).expanduser()
    if not path.parent.is_dir():
        raise SafeclError("output.folder.missing", parent=path.parent, name=path.name)
    try:
        return path.resolve(strict=True) if path.is_symlink() else path
    except (OSError, RuntimeError):  # a loop of links is a RuntimeError before Python 3.13
        raise SafeclError("output.link.dangling", path=path) from None


@contextlib.contextmanager
def locked(path: str | Path) -> Iterator[Path]:
    """The file that ``path`` means, as long as no other process is changing it; half a file of a
    killed one is deleted.

    All spellings of a file have one lock. What holds it may take it again.
    """
    file = real(path)
    key = file.resolve()
    busy = Busy("output.busy", path=path)
    if key in _held.get():
        yield file
        return
    with exclusive(file.with_name(f".{file.name}.lock"), busy, str(path), keep=False):
        if file.exists() and not os.access(file, os.W_OK):
            raise SafeclError("output.protected", path=path)
        part = re.compile(rf"\.{re.escape(file.name)}\.[0-9]+\.part")
        # all who write here take the lock, so it is a dead one's
        for entry in os.scandir(file.parent):
            if part.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    os.unlink(entry)
        before = _held.set(_held.get() | {key})
        try:
            yield file
        finally:
            _held.reset(before)


def check_output(path: str | Path, kind: str, force: bool | None = None) -> None:
    """Refuse to write a file of a ``kind`` (of ``KINDS``) over anything that is not one, such as a
    model.

    ``force``: whether the user said --force, which replaces any file; None where the command has no
    such option. A file that is not there or empty can always be written; a folder or a device never
    can.
    """
    file = Path(path).expanduser()
    if not file.exists():
        return
    if not file.is_file():
        what = "a folder" if file.is_dir() else "no file that can be replaced"
        raise SafeclError("output.no-file", path=path, what=what)
    try:
        with file.open("rb") as opened:
            head = opened.read(HEAD)
    except OSError as error:
        raise SafeclError("output.unreadable", path=path, strerror=error.strerror) from error
    if head and not force and not re.search(KINDS[kind], head):
        raise not_replaced(path, f"is no {kind} of safecl", force)


def not_replaced(path: str | Path, why: str, force: bool | None = False) -> SafeclError:
    """Why a file is not replaced, and what to do."""
    way = (
        "move it or choose another place"
        if force is None
        else "give another name, or --force (force=True in Python)"
    )
    return SafeclError("output.not-ours", path=path, why=why, way=way)


def write_output(path: str | Path, content: bytes, kind: str, force: bool | None = None) -> None:
    """Put an output in its place in one step; see ``check_output``."""
    with locked(path) as file:
        check_output(file, kind, force)
        write_bytes(file, content)
