"""What a stream promises: each picture in one session, each session once, the order the field uses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safecl.errors import SafeclError
from safecl.streams.collection import Collection, make_stream
from safecl.streams.images import ArrayPictures
from safecl.streams.stream import SessionClosedError, class_incremental, class_order, split

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
    stream = make_stream(collection(classes, 2), protocol="class", first=first, step=step, order_seed=seed)
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


def test_validation_comes_from_training_and_from_the_seed() -> None:
    def held(seed: int) -> tuple[list[int], list[int]]:
        session = make_stream(collection(each=10), first=6, held_out=0.3, seed=seed).open(1)
        inner = [getattr(part, "_pictures").indices for part in (session.train, session.validation)]  # noqa: B009
        return inner[0], inner[1]

    train, validation = held(0)
    assert len(validation) == 18 and not set(train) & set(validation)
    assert held(0) == (train, validation) != held(1)


def test_a_finished_session_cannot_be_read() -> None:
    stream = make_stream(collection(), first=3)
    first = stream.open(1)
    first.train.decode(0)
    some = first.train.subset([0, 1])
    stream.open(2)
    for read in (first.train.decode, some.decode):
        with pytest.raises(SessionClosedError):
            read(0)
    with pytest.raises(SessionClosedError):
        stream.open(1)


@pytest.mark.parametrize("number", [0, -1, 4])
def test_a_session_that_does_not_exist_is_refused(number: int) -> None:
    with pytest.raises(SafeclError, match="sessions 1 to 2"):
        make_stream(collection(), first=3).open(number)


def test_impossible_sessions_are_one_sentence() -> None:
    for bad in ({"first": 0}, {"step": 0}, {"held_out": 1.0}, {"order": ["c000", "c000"]}, {"order": ["c00"]}):
        with pytest.raises(SafeclError):
            make_stream(collection(), **bad)
    with pytest.raises(SafeclError, match="needs domains"):
        make_stream(collection(), protocol="domain")
    with pytest.raises(SafeclError, match="did you mean 'domain'"):
        make_stream(collection(), protocol="domains")


def test_an_order_that_is_given_is_kept_and_may_leave_classes_out() -> None:
    assert make_stream(collection(), order=["c003", "c001"], first=1, step=1).labels == ["c003", "c001"]


def test_numbers_stay_numbers() -> None:
    labels = [7, 7, 3, 3]
    train = ArrayPictures(np.zeros((4, 4, 4, 3), dtype=np.uint8), labels)
    stream = make_stream(Collection("n", train, train, (3, 7)), first=1, order_seed=None)
    assert stream.labels == [3, 7] and set(stream.open(2).train.labels) == {7}
