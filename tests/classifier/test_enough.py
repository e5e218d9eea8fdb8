"""Intervals, and of which classes more pictures are wanted."""

import re

import pytest
from scipy.stats import binomtest

from safecl.classifier.enough import interval, sentences, wanted


@pytest.mark.parametrize(("right", "count"), [(0, 5), (3, 5), (5, 5), (700, 1000)])
def test_the_interval_is_wilsons(right: int, count: int) -> None:
    expected = binomtest(right, count).proportion_ci(method="wilson")
    assert interval(right / count, count) == pytest.approx((expected.low, expected.high), abs=1e-4)


def test_classes_that_err_and_still_improve_are_wanted_first() -> None:
    classes = [[20, 20, 19], [20, 10, 4], [20, 10, 10], [0, 0, 0], [2, 1, 0]]
    found = wanted(classes)
    assert found[0][0] == 1 and 0 not in [place for place, _, _ in found]
    assert all(then > now for _, now, then in found)
    assert not wanted([[20, 20, 20]] * 3)


def test_a_sentence_names_what_to_teach_and_what_cannot_be_judged() -> None:
    counts = {"oak": 20, "elm": 20, "ash": 1}
    told = sentences({"classes": [[20, 20, 20], [20, 10, 4], [0, 0, 0]]}, counts)
    assert told[0].startswith("More pictures would help most of elm (about ")
    assert told[-1] == "Left out of the accuracy, with one picture only: ash."
    none = ["No class stands out as one that needs more pictures."]
    assert sentences({"classes": [[20, 20, 20]]}, {"oak": 20}) == none


def test_where_every_class_errs_the_worst_are_named_in_order_and_one_without_a_mistake_never() -> None:
    classes = [[20, right, right - 3] for right in (16, 15, 14, 13, 12, 11, 10, 9)]
    assert [place for place, _, _ in wanted(classes)] == [7, 6, 5]
    names = {f"c{i}": 20 for i in range(8)}
    (told,) = sentences({"classes": classes}, names)
    assert re.fullmatch(
        r"More pictures would help most of c7 \(about \d+ points with .*\), then of c6 .*, then of .*", told
    )
    for few in ([[10, 10, 5]] * 8, [[20, 19, 10]] * 8, [[10, 9, 4]] * 8):  # one mistake may be chance
        assert wanted(few) == []
