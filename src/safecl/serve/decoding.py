"""Pictures decoded in processes of their own, with little memory and time: what was sent may be
hostile.
"""

import contextlib
import os
import queue
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import IO, Any, TypeAlias

import numpy as np
from PIL import Image

from safecl.errors import SafeclError
from safecl.process import own_python
from safecl.streams.pictures.decode import ENOUGH, UnreadableError, decode, size_of
from safecl.streams.pictures.prepare import prepare

MAX_PIXELS = 50_000_000  # of a picture that was sent
MAX_MEMORY = 2 << 30
MAX_SECONDS = 10  # bytes of address space of a process; for a picture
ORDER = struct.Struct("<III")
REPLY = struct.Struct("<?III")
KILLED = f"decoding it takes more than {MAX_SECONDS} s or too much memory"
Decoded: TypeAlias = "np.ndarray | str"  # uint8 (H, W, 3), or why it cannot be read


def view(data: bytes, size: int, resize: int) -> Image.Image:
    """See ``prepare``. A size of 0: the whole picture, with neither side longer than ``resize``; a
    ``resize`` of 0: all of it, as ``decode`` with ``size`` as its ``least``.
    """
    width, height = size_of(data, "")
    if width * height > MAX_PIXELS:
        raise UnreadableError("", f"more than {MAX_PIXELS:,} pixels")
    image = decode(data, "", least=ENOUGH * resize or size or None)
    if not resize:
        return image
    if not size:
        image.thumbnail((resize, resize))
        return image
    return prepare(image, size, resize)


def work(source: IO[bytes], target: IO[bytes]) -> None:
    """Decode what comes in until there is no more; a picture that takes too long ends the
    process.
    """
    wait = getattr(signal, "alarm", lambda seconds: 0)  # Windows has none
    while len(head := source.read(ORDER.size)) == ORDER.size:
        size, resize, count = ORDER.unpack(head)
        data = source.read(count)
        fine = False
        sides = (0, 0)
        wait(MAX_SECONDS)
        try:
            image = view(data, size, resize)
            fine = True
            sides = image.size
            reply = image.tobytes()
        except (SafeclError, MemoryError) as error:
            reply = (error.reason if isinstance(error, UnreadableError) else KILLED).encode()
        wait(0)
        target.write(REPLY.pack(fine, *sides, len(reply)) + reply)
        target.flush()


class Decoders:
    """Some processes that decode, and a thread for each; one that dies is replaced, and costs its
    own picture alone.
    """

    def __init__(self, count: int, most_waiting: int) -> None:
        self._orders: queue.Queue[tuple[Sequence[bytes], int, int, Future[list[Decoded]]] | None]
        self._orders = queue.Queue(most_waiting)
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def submit(self, pictures: Sequence[bytes], size: int, resize: int) -> "Future[list[Decoded]]":
        """Decode pictures one after the other; ``queue.Full`` where too many wait, or no process
        starts.
        """
        future: Future[list[Decoded]] = Future()
        self._orders.put_nowait((pictures, size, resize, future))
        return future

    def close(self) -> None:
        for _ in self._threads:
            self._orders.put(None)
        for thread in self._threads:
            thread.join(MAX_SECONDS)

    def _serve(self) -> None:
        process: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError):
            process = _start()  # so that the first picture need not wait for imports
        while (order := self._orders.get()) is not None:
            pictures, size, resize, future = order
            if not future.set_running_or_notify_cancel():
                continue
            found: list[Decoded] = []
            try:
                for data in pictures:
                    if process is None or process.poll() is not None:
                        process = _start()
                    found.append(_ask(process, data, size, resize))
                future.set_result(found)
            except OSError:  # none can be started now
                future.set_exception(queue.Full())
            except Exception as error:  # which ends this request, and not the thread
                future.set_exception(error)
                end(process)
        end(process)


def _start() -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    # no tokens
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SAFECL_")}
    kept |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        own_python(__name__),
        stdin=pipe,
        stdout=pipe,
        stderr=subprocess.DEVNULL,
        env=kept,
        process_group=0,
    )


def _ask(process: subprocess.Popen[bytes], data: bytes, size: int, resize: int) -> Decoded:
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(ORDER.pack(size, resize, len(data)) + data)
        process.stdin.flush()
        fine, width, height, count = REPLY.unpack(process.stdout.read(REPLY.size))
        reply = process.stdout.read(count)
        return np.frombuffer(reply, np.uint8).reshape(height, width, 3) if fine else reply.decode()
    except (OSError, ValueError, struct.error):  # it has died
        end(process)
        return KILLED


def end(process: subprocess.Popen[Any] | None) -> None:
    """Kill a process, and close what was open to it."""
    if process is not None:
        process.kill()
        with contextlib.suppress(OSError):  # what was not sent yet
            process.communicate()


if __name__ == "__main__":
    with contextlib.suppress(ImportError, OSError, ValueError):  # not every system has these limits
        import resource

        for what, most in (
            (resource.RLIMIT_AS, MAX_MEMORY),
            (resource.RLIMIT_FSIZE, 0),
            (resource.RLIMIT_CORE, 0),
        ):
            resource.setrlimit(what, (most, most))
    work(sys.stdin.buffer, sys.stdout.buffer)
