"""Files that are either whole or not there, written aside, synced, renamed; and locks that one
process holds.
"""

import contextlib
import json
import os
import stat
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from safecl.errors import Busy, SafeclError

Buffer: TypeAlias = bytes | memoryview


@contextlib.contextmanager
def replacing(path: Path, onto: Callable[[], Path] | None = None) -> Iterator[BinaryIO]:
    """A file to write that becomes ``path`` in one step: after a crash there is the old file or the
    new one.

    Mode and owner of the old file are kept. ``onto`` is asked last of all where it goes, if that
    may change meanwhile.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        old = path.stat() if path.is_file() else None
        aside.unlink(missing_ok=True)
        # the umask decides on a new file; nobody else reads half of an old one
        mode = 0o666 if old is None else 0o600
        with open(
            os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode),
            "w+b",
        ) as file:
            yield file
            file.flush()
            if old is not None:
                _take_after(file.fileno(), old)
            os.fsync(file.fileno())
        os.replace(aside, path if onto is None else onto())
    except OSError as error:
        raise _not_written(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
    _sync_folder(path)


@contextlib.contextmanager
def exclusive(
    lock: Path, busy: Busy, place: str, folder: Path | None = None, *, keep: bool = True
) -> Iterator[None]:
    """Hold ``lock`` meanwhile, or raise ``busy`` if another process holds it.

    ``place``: what cannot be written if the lock cannot. ``folder``: is made first. ``keep``:
    whether the file stays.
    """
    from filelock import FileLock, Timeout  # slow to import, and most commands' help does without

    held = FileLock(lock, timeout=0)
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        try:
            held.acquire()
        except Timeout:
            tempfile.TemporaryFile(
                dir=lock.parent
            ).close()  # a lock times out, too, where no file can be made
            raise busy from None
    except OSError as error:
        raise SafeclError(
            "file.place.not-writable", place=place, reason=error.strerror or error
        ) from error
    try:
        fd = held._context.lock_file_fd
        # removed by its holder after we opened it
        gone = fd is not None and os.fstat(fd).st_nlink == 0
        if gone:
            raise busy
        yield
    finally:
        if not keep and not gone:
            with contextlib.suppress(OSError):  # Windows removes no open file
                lock.unlink()
        held.release()


def write_bytes(path: Path, *parts: Buffer, onto: Callable[[], Path] | None = None) -> None:
    """Put ``parts`` at ``path`` in one step; ``onto`` as in ``replacing``."""
    with replacing(path, onto) as file:
        for part in parts:
            file.write(part)


def write_json(path: Path, value: Any) -> None:
    write_bytes(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    write_bytes(path, *(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines))


def append_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    """Put lines at the end of a file that would take ever longer to write anew; a line that fails
    is taken back.
    """
    before = path.stat().st_size if path.exists() else 0
    try:
        with path.open("ab") as file:
            for line in lines:
                file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        # the file is closed, so nothing of a line is written after this
        with contextlib.suppress(OSError):
            os.truncate(path, before)
        raise _not_written(path, error) from error


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a file; None where there is none or it is damaged."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def read_lines(path: Path, upto: int) -> list[dict[str, Any]]:
    """The lines of sessions up to ``upto``; one that was torn by a kill is omitted."""
    found = []
    for text in path.read_bytes().split(b"\n") if path.exists() else []:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            line = json.loads(text)
            if line["session"] <= upto:
                found.append(line)
    return found


def _not_written(path: Path, error: OSError) -> SafeclError:
    return SafeclError("file.not-written", path=path, reason=error.strerror or error)


def _take_after(descriptor: int, old: os.stat_result) -> None:
    """Give an open file the owner and group of another, as far as that is allowed, and its mode."""
    if os.name != "posix":
        return
    for owner, group in ((-1, old.st_gid), (old.st_uid, -1)):
        with contextlib.suppress(OSError):
            os.fchown(descriptor, owner, group)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))


def _sync_folder(path: Path) -> None:
    """Have the new name of a file survive a power failure, or say that it may not: the file itself
    is there.
    """
    if os.name != "posix":
        return
    try:
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        warnings.warn(
            f"{path} is written, but a power failure may undo that ({error.strerror or error}).",
            stacklevel=2,
        )
