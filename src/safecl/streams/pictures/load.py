"""Batches of pictures, read ahead by threads while the device computes."""

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Literal, NamedTuple, TypeAlias

from torch import Tensor

from safecl.ram import cores
from safecl.streams.pictures.images import Pictures, Transform

View: TypeAlias = Literal["plain", "canvas"]


class Batch(NamedTuple):
    """``indices``: positions in the collection. ``pictures``: uint8 (n, 3, side, side). ``shapes``:
    of canvases.
    """

    indices: list[int]
    pictures: Tensor
    shapes: Tensor | None = None


def batches(
    pictures: Pictures,
    order: Sequence[int],
    batch_size: int,
    view: View,
    transform: Transform,
    workers: int | None = None,
    pin: bool = False,
) -> Iterator[Batch]:
    """The pictures at ``order``, ``batch_size`` at a time and in that order; ``workers`` threads
    read ahead.

    Threads, not processes: decoding and copying release Python's lock, nothing is started or sent
    between processes each epoch, and the cache is shared. ``workers``: ``readers()`` unless given.
    ``pin``: into pinned memory, from which a copy to a GPU overlaps with its work.
    """
    workers = workers or readers()
    chunks = [
        [int(i) for i in order[at : at + batch_size]] for at in range(0, len(order), batch_size)
    ]
    pool = _pool(workers, os.getpid(), getattr(os, "nice", int)(0))
    waiting = deque[Future[Batch]]()
    try:
        for chunk in chunks:
            waiting.append(pool.submit(read, pictures, chunk, view, transform, pin))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def read(
    pictures: Pictures, indices: list[int], view: View, transform: Transform, pin: bool = False
) -> Batch:
    shapes = None
    if view == "plain":
        found = pictures.plain(indices, transform)
    else:
        found, shapes = pictures.canvas(indices, transform)
    return Batch(indices, found.pin_memory() if pin else found, shapes)


def readers() -> int:
    """How many pictures or batches to read at a time: one per usable core, 8 at most."""
    return min(cores(), 8)


@cache
def _pool(workers: int, process: int, priority: int) -> ThreadPoolExecutor:
    """The same threads for every epoch, session and stream of one process: threads do not survive a
    fork, and keep the priority of the one that made them.
    """
    return ThreadPoolExecutor(workers, thread_name_prefix="pictures")
