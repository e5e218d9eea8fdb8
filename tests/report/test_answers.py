"""Answers to test pictures are counted right."""

from typing import Any

import pytest

from safecl.report import answers
from safecl.report.runs import read_run


def test_pairs_of_classes_are_counted_the_most_frequent_first(make_run: Any) -> None:
    run = read_run(make_run(sessions=2))
    first, second, third = run.facts.stream.sessions[0].classes[:3]
    assert answers.pairs(run) == [(first, second, 2), (first, third, 1)]


def test_weights_are_means_by_class_in_the_order_of_learning(make_run: Any) -> None:
    run = read_run(make_run(sessions=2))
    found = answers.weights(run)
    assert [one.label for one in found] == [label for part in run.facts.stream.sessions for label in part.classes]
    assert found[0].fast == pytest.approx(0.46) and found[-1].session == 2
    assert answers.weights(read_run(make_run("other", method="ranpac"))) == []
