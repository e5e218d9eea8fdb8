"""Answers to test pictures are counted right."""

from typing import Any

import pytest

from safecl.report import answers
from safecl.report.runs import read_run


def test_confusions_are_counted_among_the_classes_of_the_most_frequent_pairs(make_run: Any) -> None:
    run = read_run(make_run(sessions=2))
    first, second, third = run.facts.stream.sessions[0].classes[:3]
    assert answers.pairs(run) == [(first, second, 2), (first, third, 1)]
    found = answers.confusion(run)
    assert found is not None and found.labels == [first, second, third]
    assert found.counts == [[7, 2, 1], [0, 10, 0], [0, 0, 10]] and found.tested == [10, 10, 10]
    few = answers.confusion(run, most=2)
    assert few is not None and few.counts == [[7, 2], [0, 10]] and few.tested == [10, 10]


def test_weights_are_means_by_class_in_the_order_of_learning(make_run: Any) -> None:
    run = read_run(make_run(sessions=2))
    found = answers.weights(run)
    assert [one.label for one in found] == [label for part in run.facts.stream.sessions for label in part.classes]
    assert found[0].fast == pytest.approx(0.46) and found[-1].session == 2
    assert answers.weights(read_run(make_run("other", method="ranpac"))) == []
