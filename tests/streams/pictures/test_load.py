"""Batches come in their order, are read ahead, and bring the error of the picture that has one."""

import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from safecl.streams.pictures.decode import UnreadableError
from safecl.streams.pictures.images import ArrayPictures, Pictures, Transform
from safecl.streams.pictures.load import batches, readers
from tests.conftest import raises

SMALL = Transform(size=4, margin=1.0)


def numbered(n: int) -> ArrayPictures:
    return ArrayPictures(
        np.arange(n, dtype=np.uint8).reshape(n, 1, 1, 1) + np.zeros((1, 4, 4, 3), np.uint8),
        range(n),
    )


@settings(max_examples=30)
@given(
    st.permutations(range(17)),
    st.integers(1, 20),
    st.integers(0, 3),
    st.sampled_from(["plain", "canvas"]),
)
def test_any_order_batch_size_and_number_of_workers_give_the_same_pictures(
    order, size, workers, view
) -> None:
    got = list(batches(numbered(17), order, size, view, SMALL, workers))
    assert [i for batch in got for i in batch.indices] == order
    assert torch.cat([batch.pictures for batch in got])[:, 0, 0, 0].tolist() == order
    assert [len(batch.indices) for batch in got[:-1]] == [size] * (len(got) - 1)
    assert all((batch.shapes is None) == (view == "plain") for batch in got)


class Slow(Pictures):
    labels = tuple(range(40))

    def __init__(self, bad: int = -1) -> None:
        self.bad = bad
        self.read = 0
        self.threads = set[str]()

    def decode(self, index: int) -> Image.Image:
        if index == self.bad:
            raise UnreadableError(f"{index}.jpg", "broken")
        self.read += 1
        self.threads.add(threading.current_thread().name)
        return Image.new("RGB", (4, 4))


def test_the_next_batches_are_read_while_one_is_used_and_not_many_more() -> None:
    slow = Slow()
    iterator = batches(slow, range(40), 4, "plain", SMALL, workers=2)
    next(iterator)
    for _ in range(200):
        if slow.read >= 12:
            break
        time.sleep(0.01)
    assert slow.read == 12
    iterator.close()


def test_the_same_threads_serve_every_epoch() -> None:
    slow = Slow()
    for _ in range(5):
        list(batches(slow, range(40), 4, "plain", SMALL, workers=2))
    assert len(slow.threads) <= 2


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own here")
def test_threads_that_were_made_for_work_of_low_priority_read_for_no_other() -> None:
    class Asking(Slow):
        def decode(self, index: int) -> Image.Image:
            self.threads.add(str(os.nice(0)))
            return super().decode(index)

    def read(by: int) -> set[str]:
        os.nice(by)
        asking = Asking()
        list(batches(asking, range(12), 4, "plain", SMALL, workers=3))
        return {name for name in asking.threads if name.isdecimal()}

    usual = os.nice(0)
    with ThreadPoolExecutor(1) as lesson:
        assert lesson.submit(read, 3).result() == {str(usual + 3)}
    assert read(0) == {str(usual)}


@pytest.mark.parametrize("workers", [0, 2])
def test_an_unreadable_picture_stops_the_reading_with_its_name(workers: int) -> None:
    with raises("picture.unreadable", where="13.jpg"):
        list(batches(Slow(bad=13), range(40), 4, "plain", SMALL, workers))


def test_no_pictures_are_no_batches() -> None:
    assert list(batches(numbered(3), [], 4, "plain", SMALL)) == []


def test_reading_goes_on_in_a_forked_process() -> None:
    assert len(list(batches(numbered(9), range(9), 2, "plain", SMALL, workers=2))) == 5
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)  # ends a child that hangs
        read = [
            i
            for batch in batches(numbered(9), range(9), 2, "plain", SMALL, workers=2)
            for i in batch.indices
        ]
        os._exit(0 if read == list(range(9)) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(list(batches(numbered(9), range(9), 2, "plain", SMALL, workers=2))) == 5


@pytest.mark.parametrize(("usable", "expected"), [(1, 1), (5, 5), (200, 8)])
def test_as_many_pictures_are_read_at_a_time_as_there_are_usable_cores_up_to_eight(
    monkeypatch: pytest.MonkeyPatch, usable: int, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(usable)), raising=False)
    assert readers() == expected
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: usable)
    assert readers() == expected
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert readers() == 1
