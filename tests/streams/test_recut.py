"""The same pictures in other sessions: none is lost or doubled, and classes keep their own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safecl.streams import recut
from safecl.streams.pictures.images import ArrayPictures, Pictures
from safecl.streams.stream import Part, Stream


def pictures(classes: int, each: int, seed: int = 0) -> ArrayPictures:
    """Pictures whose first two pixels say which they are."""
    pixels = np.random.default_rng(seed).integers(0, 256, (classes * each, 4, 4, 3), dtype=np.uint8)
    pixels[:, 0, 0, 0] = np.arange(len(pixels)) // 256
    pixels[:, 0, 0, 1] = np.arange(len(pixels)) % 256
    return ArrayPictures(pixels, [f"c{i // each:02d}" for i in range(len(pixels))])


def numbers(some: Pictures) -> list[int]:
    """Which pictures these are."""
    first = [np.asarray(some.decode(i))[0, 0] for i in range(len(some))]
    return [int(pixel[0]) * 256 + int(pixel[1]) for pixel in first]


def brought(parts: list[Part], each: int) -> list[int]:
    found = []
    for part in parts:
        mine = numbers(part.train)
        assert list(part.train.labels) == [f"c{i // each:02d}" for i in mine]
        assert set(part.train.labels) == set(part.classes)
        found += mine
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["evenly", "blurry", "returning"])
def test_every_picture_comes_once_and_every_class_is_tested_once(name: str, seed: int) -> None:
    train = pictures(7, 6)
    test = pictures(7, 3, seed=1)
    classes = [f"c{i:02d}" for i in range(7)]
    draws = () if name == "evenly" else (np.random.default_rng(seed),)
    parts = getattr(recut, name)(train, test, classes, 3, *draws)
    assert sorted(brought(parts, 6)) == list(range(42))
    tested = [label for part in parts for label in part.test.labels]
    assert sorted(tested) == sorted(test.labels)
    for number, part in enumerate(parts):  # a class is tested from the first session that shows it
        before = {label for one in parts[:number] for label in one.classes}
        assert set(part.test.labels) == set(part.classes) - before
    stream = Stream("s", parts, "mixed")
    assert set(stream.labels) == set(classes)


@given(st.integers(2, 40), st.data())
def test_unequal_sizes_add_up_and_none_is_empty(classes: int, data: st.DataObject) -> None:
    sessions = data.draw(st.integers(1, classes))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    sizes = recut.unequal_sizes(classes, sessions, random)
    assert len(sizes) == sessions and sum(sizes) == classes and min(sizes) > 0


def test_si_blurry_keeps_the_disjoint_half_in_one_session_each() -> None:
    classes = [f"c{i:02d}" for i in range(20)]
    random = np.random.default_rng(0)
    parts = recut.blurry(pictures(20, 30), pictures(20, 1), classes, 4, random, moved=0.5)
    homes = {
        label: {i for i, part in enumerate(parts) if label in part.classes} for label in classes
    }
    assert sum(len(found) == 1 for found in homes.values()) == 10


def test_wrong_labels_are_of_the_session_and_as_many_as_asked() -> None:
    (part,) = recut.evenly(pictures(4, 25), pictures(4, 1), [f"c{i:02d}" for i in range(4)], 1)
    wrong = recut.mislabelled(part, 0.2, np.random.default_rng(0))
    pairs = list(zip(part.train.labels, wrong.train.labels, strict=True))
    assert sum(one != other for one, other in pairs) == 20
    assert set(wrong.train.labels) == set(part.classes)
    some = wrong.train.subset([3, 1])
    assert list(some.labels) == [wrong.train.labels[3], wrong.train.labels[1]]
    assert numbers(some) == [numbers(part.train)[i] for i in (3, 1)]


def test_few_and_long_tails_keep_what_they_promise() -> None:
    random = np.random.default_rng(0)
    some = recut.few(pictures(5, 9), 2, random)
    assert sorted(some.labels) == sorted(f"c{i:02d}" for i in range(5) for _ in range(2))
    tail = recut.long_tail(pictures(5, 40), 20.0, random)
    counts = sorted(np.unique(tail.labels, return_counts=True)[1].tolist())
    assert counts == [2, 4, 9, 19, 40]  # 40 · 20^(−i/4)


def test_a_stream_that_looks_ahead_tests_what_is_to_come() -> None:
    train = pictures(4, 2)
    parts = recut.evenly(train, train, [f"c{i:02d}" for i in range(4)], 2)
    stream = Stream("s", [parts[0], parts[1]])
    assert list(stream.tested(1)) == [1]
    ahead = stream.recut(parts, ahead=True)
    assert list(ahead.tested(1)) == [1, 2] and list(ahead.copy().tested(1)) == [1, 2]
    assert ahead.transform == stream.transform
