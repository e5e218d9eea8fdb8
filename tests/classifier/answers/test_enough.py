"""Intervals, and of which classes more pictures are wanted."""

import re

import numpy as np
import pytest
from scipy.stats import binomtest

from safecl.classifier.answers.enough import (
    at_worst,
    interval,
    mean_over,
    needed,
    promise_text,
    sentences,
    wanted,
)


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


def test_where_every_class_errs_the_worst_are_named_in_order_and_one_without_a_mistake_never() -> (
    None
):
    classes = [[20, right, right - 3] for right in (16, 15, 14, 13, 12, 11, 10, 9)]
    assert [place for place, _, _ in wanted(classes)] == [7, 6, 5]
    names = {f"c{i}": 20 for i in range(8)}
    (told,) = sentences({"classes": classes}, names)
    assert re.fullmatch(
        r"More pictures would help most of c7 \(about \d+ points with .*\), then of c6 .*, then"
        r" of .*",
        told,
    )
    # one mistake may be chance
    for few in (
        [[10, 10, 5]] * 8,
        [[20, 19, 10]] * 8,
        [[10, 9, 4]] * 8,
    ):
        assert wanted(few) == []


def test_classes_judged_by_equally_many_pictures_count_the_same() -> None:
    rows = [[20, 20, 0], [20, 10, 0], [0, 0, 0], [20, 15, 0]]
    assert mean_over(rows) == pytest.approx((0.75, 60))


def test_a_class_of_two_pictures_moves_the_accuracy_by_little() -> None:
    """It moved it from 90 to 81 %, by two pictures; the wider interval still holds what they may
    mean.
    """
    most = [[20, 18, 18]] * 9
    (before, _), (after, pictures) = mean_over(most), mean_over([*most, [2, 0, 0]])
    assert before == pytest.approx(0.9) and after == pytest.approx(0.848, abs=0.001)
    low, high = interval(after, pictures)
    assert low < 0.81 < 0.89 < high and mean_over([*most, [2, 2, 2]])[0] == pytest.approx(
        0.906, abs=0.001
    )


@pytest.mark.parametrize(
    "counts", [[20] * 9 + [2], [20] * 5 + [2] * 5, [2, 3, 5, 8, 12, 20, 20, 40, 60, 100], [2] * 10]
)
def test_the_interval_holds_the_mean_over_classes_and_errs_less_than_classes_that_count_the_same(
    counts: list[int],
) -> None:
    """Drawn classes of accuracies around 85 %, and draws of as many pictures as are judged."""
    draw = np.random.default_rng(0)
    n = np.array(counts)
    held = 0
    errors = list[tuple[float, float]]()
    for _ in range(1000):
        true = draw.beta(0.85 * 9, 0.15 * 9, len(n))
        right = draw.binomial(n, true)
        mean, pictures = mean_over(list(zip(counts, right.tolist(), strict=True)))
        low, high = interval(mean, pictures)
        held += low <= true.mean() <= high
        errors.append((mean - true.mean(), (right / n).mean() - true.mean()))
    assert 930 <= held <= 985
    ours, same = np.sqrt(np.mean(np.square(errors), axis=0))
    assert ours < 0.9 * same or (len(set(counts)) == 1 and ours == pytest.approx(same))


def test_classes_that_few_pictures_judge_are_named() -> None:
    counts = {"oak": 20, "elm": 2, "ash": 1}
    told = sentences({"classes": [[20, 20, 20], [2, 0, 0], [0, 0, 0]]}, counts)
    assert told[-2:] == [
        "Judged by 3 pictures or fewer, so that they count less in the accuracy: elm.",
        "Left out of the accuracy, with one picture only: ash.",
    ]


def test_a_rate_is_promised_by_pictures_enough_and_says_what_one_model_of_twenty_exceeds() -> None:
    assert (needed(0.05), needed(0.01), needed(0.2)) == (59, 299, 14)
    assert "nothing is promised by 40 judged pictures; from 59 on" in promise_text(
        {"pictures": 40}, 0.05
    )
    assert "at most 5 % promised on average" in promise_text({"pictures": 80}, 0.05)
    for judged, rate in ((59, 0.05), (200, 0.05), (1000, 0.01)):
        k = int(rate * (judged + 1))
        drawn = np.random.default_rng(0).beta(k, judged + 1 - k, 200_000)
        assert at_worst(rate, judged) == pytest.approx(np.quantile(drawn, 0.95), rel=0.02)
