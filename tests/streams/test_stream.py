"""What a stream promises: each picture in one session, each session once, the order the field
uses.
"""

import itertools
import json
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from safecl.errors import SafeclError
from safecl.streams.collection import Collection, make_stream
from safecl.streams.pictures.images import ArrayPictures, Pictures
from safecl.streams.stream import SessionClosedError, class_incremental, class_order, split
from tests.conftest import raises

FIRST_OF_1993 = {
    100: [68, 56, 78, 8, 23, 84, 90, 65, 74, 76, 40, 89],
    200: [168, 136, 51, 9, 183, 101, 171, 99, 42, 159, 191, 70],
    300: [169, 221, 146, 296, 92, 229, 49, 70, 126, 77, 243, 57],
    196: [59, 134, 162, 9, 42, 72, 118, 99, 109, 79, 43, 100],
    50: [43, 41, 23, 14, 13, 40],
}


def pictures(classes: int, each: int) -> ArrayPictures:
    labels = [f"c{i:03d}" for i in range(classes) for _ in range(each)]
    return ArrayPictures(np.zeros((len(labels), 4, 4, 3), dtype=np.uint8), labels)


def collection(classes: int = 6, each: int = 4) -> Collection:
    train = pictures(classes, each)
    return Collection("toy", train, pictures(classes, 2), tuple(dict.fromkeys(train.labels)))


@pytest.mark.parametrize("classes", FIRST_OF_1993)
def test_the_order_of_1993_is_the_fields(classes: int) -> None:
    expected = FIRST_OF_1993[classes]
    assert class_order(range(classes))[: len(expected)] == expected


def test_cars_are_cut_into_sixteen_and_nine_times_twenty() -> None:
    parts = class_incremental(
        pictures(196, 1), pictures(196, 1), class_order([f"c{i:03d}" for i in range(196)]), 16, 20
    )
    assert [len(part.classes) for part in parts] == [16] + [20] * 9


@given(st.integers(1, 30), st.integers(1, 12), st.integers(1, 12), st.integers(0, 3))
def test_every_class_and_every_picture_is_in_exactly_one_session(
    classes: int, first: int, step: int, seed: int
) -> None:
    stream = make_stream(
        collection(classes, 2), protocol="class", first=first, step=step, order_seed=seed
    )
    brought = [label for _, session in stream.sessions for label in session]
    assert sorted(brought) == sorted(set(brought)) == [f"c{i:03d}" for i in range(classes)]
    assert stream.labels == brought
    assert sum(len(session.train) for session in stream) == 2 * classes
    for number, (_, mine) in enumerate(stream.sessions, start=1):
        assert set(stream.test(number).labels) == set(mine)
        assert len(mine) <= (first if number == 1 else step)


@given(st.lists(st.sampled_from("abcd"), max_size=40), st.floats(0, 0.99), st.integers(0, 5))
def test_a_split_is_a_partition_that_leaves_every_class_a_picture(
    labels: list[str], fraction: float, seed: int
) -> None:
    keep, hold = split(labels, fraction, np.random.default_rng(seed))
    assert sorted(keep + hold) == list(range(len(labels)))
    assert {labels[i] for i in keep} == set(labels)


def numbered(classes: int = 6, each: int = 10) -> Collection:
    """Every picture is its own number."""

    def draw(each: int, first: int) -> ArrayPictures:
        labels = [f"c{i:03d}" for i in range(classes) for _ in range(each)]
        values = np.arange(first, first + len(labels), dtype=np.uint8).reshape(-1, 1, 1, 1)
        return ArrayPictures(values + np.zeros((1, 4, 4, 3), np.uint8), labels)

    train = draw(each, 0)
    return Collection("toy", train, draw(2, len(train)), tuple(dict.fromkeys(train.labels)))


def shown(pictures: Pictures) -> list[int]:
    return [pictures.decode(i).getpixel((0, 0))[0] for i in range(len(pictures))]


def test_validation_pictures_are_those_a_session_leaves_out() -> None:
    data = numbered()

    def held(seed: int) -> list[tuple[list[int], list[int]]]:
        stream = make_stream(data, first=2, held_out=0.3, seed=seed)
        before = [shown(stream.validation(number)) for number in (1, 2, 3)]
        opened = [
            (shown(session.train), shown(stream.validation(session.number))) for session in stream
        ]
        assert [validation for _, validation in opened] == before
        return opened

    parts = held(0)
    for train, validation in parts:
        assert len(validation) == 6 and len(train) == 14 and not set(train) & set(validation)
    assert sorted(i for train, validation in parts for i in train + validation) == list(range(60))
    assert held(0) == parts != held(1)
    assert not hasattr(make_stream(data).open(1), "validation")
    assert len(make_stream(data).validation(1)) == 0


def test_validation_pictures_are_drawn_from_every_class() -> None:
    stream = make_stream(numbered(), first=3, held_out=0.2)
    assert Counter(stream.validation(2).labels) == dict.fromkeys(stream.sessions[1][1], 2)


def test_a_joint_stream_learns_everything_at_once_and_tests_part_by_part() -> None:
    stream = make_stream(numbered(), first=2, held_out=0.3, seed=4)
    joint = stream.joint()
    assert len(joint) == 1 and joint.labels == stream.labels
    assert joint.test_parts == stream.test_parts == stream.sessions and len(joint.test_parts) == 3
    assert joint.sessions == [("joint", tuple(stream.labels))]
    for number in (1, 2, 3):
        assert shown(joint.test(number)) == shown(stream.test(number))
        assert shown(joint.validation(number)) == shown(stream.validation(number))
    assert list(stream.brought(2)) == [1, 2] and list(joint.brought(1)) == [1, 2, 3]
    (session,) = joint
    trained = [shown(s.train) for s in stream]
    assert shown(session.train) == [i for part in trained for i in part]
    assert session.classes == tuple(stream.labels) and session.number == 1
    session.close()
    with pytest.raises(SessionClosedError):
        session.train.decode(0)


def test_sessions_of_separate_collections_are_joined(request: pytest.FixtureRequest) -> None:
    stream = request.getfixturevalue("make_stream")([["a", "b"], ["b", "c"]], train=2)
    joint = stream.joint()
    transform = stream.transform
    train = joint.open(1).train
    assert list(train.labels) == ["a", "a", "b", "b", "b", "b", "c", "c"] and joint.labels == [
        "a",
        "b",
        "c",
    ]
    views = [
        (s.train.plain(range(4), transform), *s.train.canvas(range(4), transform)) for s in stream
    ]
    order = [6, 1, 4, 3]
    for got, one, two in zip(
        (train.plain(order, transform), *train.canvas(order, transform)), *views, strict=True
    ):
        assert torch.equal(got, torch.cat([one, two])[order])


@pytest.mark.parametrize("number", [0, -1, 3])
def test_a_part_that_does_not_exist_is_refused(number: int) -> None:
    stream = make_stream(numbered(4), first=2, held_out=0.1)
    for ask in (stream.test, stream.validation):
        with raises("stream.part.unknown", last=2):
            ask(number)


def test_the_fingerprint_of_a_stream_says_what_each_session_is_made_of() -> None:
    stream = make_stream(numbered(4), first=2, held_out=0.3)
    found = stream.fingerprint()
    assert found == json.loads(json.dumps(found))
    assert [(part["session"], part["name"], part["classes"]) for part in found] == [
        (number, name, list(classes)) for number, (name, classes) in enumerate(stream.sessions, 1)
    ]
    assert [
        [part[kind]["pictures"] for kind in ("train", "validation", "test")] for part in found
    ] == [[14, 6, 4]] * 2
    assert make_stream(numbered(4), first=2, held_out=0.3).fingerprint() == found
    others = [
        make_stream(numbered(4), first=2, held_out=0.3, seed=1),
        make_stream(numbered(4), first=2, held_out=0.3, order_seed=3),
        make_stream(numbered(4), first=2),
        make_stream(numbered(4), first=3, held_out=0.3),
        stream.joint(),
    ]
    digests = [json.dumps(other.fingerprint()) for other in others]
    assert len({json.dumps(found), *digests}) == len(others) + 1


def test_some_pictures_of_a_session_come_in_the_order_asked_for_with_their_classes() -> None:
    stream = make_stream(
        collection(classes=4, each=2), first=3, order=("c002", "c000", "c001", "c003")
    )
    session = stream.open(1)
    labels = session.train.labels
    some = session.only([5, 0, 4])
    assert some.train.labels == [labels[5], labels[0], labels[4]]
    assert some.classes == tuple(
        label for label in ("c002", "c000", "c001") if label in some.train.labels
    )
    assert len(some.classes) == 2 and len(session.train) == 6
    some.train.decode(0)
    stream.open(2)
    with pytest.raises(SessionClosedError):
        some.train.decode(0)


def test_a_finished_session_cannot_be_read() -> None:
    stream = make_stream(collection(), first=3)
    first = stream.open(1)
    first.train.decode(0)
    some = first.train.subset([0, 1])
    stream.open(2)
    reads: tuple[Callable[[Pictures], object], ...] = (
        lambda pictures: pictures.decode(0),
        lambda pictures: pictures.size_of(0),
        lambda pictures: pictures.digest(0),
        lambda pictures: pictures.plain([0], stream.transform),
        lambda pictures: pictures.canvas([0], stream.transform),
        lambda pictures: pictures.side(stream.transform),
        lambda pictures: pictures.shorter_side,
        lambda pictures: pictures.fingerprint(),
    )
    for pictures, read in itertools.product((first.train, some), reads):
        with pytest.raises(SessionClosedError):
            read(pictures)
    with pytest.raises(SessionClosedError):
        stream.open(1)


@pytest.mark.parametrize("number", [0, -1, 4])
def test_a_session_that_does_not_exist_is_refused(number: int) -> None:
    with raises("stream.session.unknown", last=2):
        make_stream(collection(), first=3).open(number)


def test_impossible_sessions_are_one_sentence() -> None:
    for bad in (
        {"first": 0},
        {"step": 0},
        {"held_out": 1.0},
        {"order": ["c000", "c000"]},
        {"order": ["c00"]},
    ):
        with pytest.raises(SafeclError):
            make_stream(collection(), **bad)
    with raises("stream.domains.none"):
        make_stream(collection(), protocol="domain")
    with raises("name.unknown.near", near="domain"):
        make_stream(collection(), protocol="domains")


def test_an_order_that_is_given_is_kept_and_may_leave_classes_out() -> None:
    assert make_stream(collection(), order=["c003", "c001"], first=1, step=1).labels == [
        "c003",
        "c001",
    ]


def test_numbers_stay_numbers() -> None:
    labels = [7, 7, 3, 3]
    train = ArrayPictures(np.zeros((4, 4, 4, 3), dtype=np.uint8), labels)
    stream = make_stream(Collection("n", train, train, (3, 7)), first=1, order_seed=None)
    assert stream.labels == [3, 7] and set(stream.open(2).train.labels) == {7}
