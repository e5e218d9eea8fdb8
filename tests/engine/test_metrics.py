"""Accuracy and forgetting against their definitions, on random matrices with tests of unequal
size.
"""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safecl.engine.metrics import History, Measured, mean, measure, pooled


def matrix(seed: int, sessions: int, domain: bool = False) -> list[list[float]]:
    """R as it grows: row t has t entries, or all of them where every domain is tested every
    time.
    """
    random = np.random.default_rng(seed)
    return [random.uniform(size=sessions if domain else t).tolist() for t in range(1, sessions + 1)]


def forgetting(rows: list[list[float]]) -> float:
    """F_t as a history notes it after the last of ``rows``."""
    history = History(("safe",))
    for row in rows:
        history.add({"safe": row}, [1] * len(row))
    return float(history.lines[-1]["forgetting"]["safe"])


@given(st.integers(0, 2**31), st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_pooled_accuracy_is_that_over_all_pictures_whatever_the_sizes(
    seed: int, counts: list[int]
) -> None:
    random = np.random.default_rng(seed)
    right = [random.integers(0, 2, n) for n in counts]
    accuracies = [float(np.mean(r)) for r in right]
    assert pooled(accuracies, counts) == pytest.approx(np.mean(np.concatenate(right)))
    assert mean(accuracies) == pytest.approx(np.mean(accuracies))


def test_pooled_and_mean_differ_where_sizes_do() -> None:
    assert pooled([1.0, 0.0], [9, 1]) == pytest.approx(0.9)
    assert mean([1.0, 0.0]) == pytest.approx(0.5)


def test_without_a_test_picture_there_is_no_accuracy_and_no_forgetting() -> None:
    assert pooled([], []) is None and pooled([None], [0]) is None and mean([None]) is None
    history = History(("safe",))
    history.add({"safe": [None]}, [0])
    line = history.add({"safe": [None, None]}, [0, 0])
    assert (
        line["pooled"]["safe"] is None
        and line["seen"]["safe"] is None
        and line["forgetting"]["safe"] is None
    )
    summary = history.summary()
    assert summary["final"]["safe"] is None and summary["average"]["safe"] is None
    json.dumps(summary)


def test_a_session_without_test_pictures_is_left_out_of_every_mean() -> None:
    history = History(("safe",))
    history.add({"safe": [0.8]}, [10])
    history.add({"safe": [0.6, None]}, [10, 0])
    line = history.add({"safe": [0.4, None, 1.0]}, [10, 0, 30])
    assert line["pooled"]["safe"] == pytest.approx((4 + 30) / 40) and line["task_mean"][
        "safe"
    ] == pytest.approx(0.7)
    assert line["forgetting"]["safe"] == pytest.approx(0.4)  # of session 1 alone


@given(st.integers(0, 2**31), st.integers(1, 7), st.booleans())
def test_forgetting_is_the_printed_sum(seed: int, t: int, domain: bool) -> None:
    rows = matrix(seed, t, domain)
    # R_{i,j}, from 1
    r = {(i + 1, j + 1): value for i, row in enumerate(rows) for j, value in enumerate(row)}
    lost = [max(r[k, i] for k in range(i, t)) - r[t, i] for i in range(1, t)]
    assert forgetting(rows) == pytest.approx(np.mean(lost) if t > 1 else 0.0)


@given(st.integers(0, 2**31), st.lists(st.integers(1, 30), min_size=1, max_size=6))
def test_metrics_are_those_of_single_answers_with_more_than_100_classes(
    seed: int, counts: list[int]
) -> None:
    """Brute force: every answer to every picture of every session after each, and counting by
    hand.
    """
    random = np.random.default_rng(seed)
    classes = 130
    history = History(("safe",))
    truth = [random.integers(0, classes, n) for n in counts]
    right: list[list[np.ndarray]] = []
    for t in range(1, len(counts) + 1):
        guesses = [
            np.where(random.random(len(y)) < 0.6, y, random.integers(0, classes, len(y)))
            for y in truth[:t]
        ]
        right.append([g == y for g, y in zip(guesses, truth, strict=False)])
        history.add({"safe": [float(r.mean()) for r in right[-1]]}, counts[:t])
    summary = history.summary()
    r = [[float(x.mean()) for x in row] for row in right]
    everything = [np.concatenate(row) for row in right]
    assert summary["final"]["safe"] == pytest.approx(everything[-1].mean())
    assert summary["average"]["safe"] == pytest.approx(np.mean([x.mean() for x in everything]))
    last = len(counts) - 1
    lost = [max(r[k][i] for k in range(i, last)) - r[last][i] for i in range(last)]
    assert summary["forgetting"]["safe"] == pytest.approx(np.mean(lost) if lost else 0.0)


@given(st.integers(0, 2**31), st.integers(2, 7))
def test_what_was_never_better_is_not_forgotten(seed: int, t: int) -> None:
    final = np.random.default_rng(seed).uniform(size=t).tolist()
    steady = [final[: i + 1] for i in range(t)]
    assert forgetting(steady) == pytest.approx(0)


def test_a_history_notes_every_output_and_sums_up() -> None:
    counts = [10, 30, 5]
    outputs = ("slow", "safe")
    rows = {output: matrix(seed, 3) for seed, output in enumerate(outputs)}
    history = History(outputs)
    for t in (1, 2, 3):
        accuracy = {output: rows[output][t - 1] for output in outputs}
        line = history.add(accuracy, counts[:t], classes_seen=4 * t, seconds={"total": 2.0})
        json.dumps(line)
        assert line["session"] == t and line["test_counts"] == counts[:t]
        for output in outputs:
            assert line["pooled"][output] == pytest.approx(
                np.average(rows[output][t - 1], weights=counts[:t])
            )
            assert line["task_mean"][output] == pytest.approx(np.mean(rows[output][t - 1]))
            assert line["forgetting"][output] == pytest.approx(forgetting(rows[output][:t]))
    summary = history.summary()
    for output in outputs:
        every = [np.average(row, weights=counts[: len(row)]) for row in rows[output]]
        assert summary["final"][output] == pytest.approx(every[-1])
        assert summary["average"][output] == pytest.approx(np.mean(every))
        assert summary["final_task_mean"][output] == pytest.approx(np.mean(rows[output][-1]))
        assert summary["forgetting"][output] == pytest.approx(forgetting(rows[output]))
    assert (summary["sessions"], summary["classes"], summary["seconds"]) == (3, 12, 6.0)


def test_a_history_that_is_read_back_goes_on_as_it_would_have() -> None:
    rows = matrix(3, 5)
    whole = History(("safe",))
    for row in rows:
        whole.add({"safe": row}, [1] * len(row))
    resumed = History(("safe",), whole.lines[:3])
    for row in rows[3:]:
        resumed.add({"safe": row}, [1] * len(row))
    assert resumed.lines == whole.lines


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_metric_that_gives_no_number_is_heard(value: float) -> None:
    measured = Measured([[1.0]], [1], 1)
    with pytest.warns(UserWarning, match=f"'odd' .* gave {value}"):
        assert measure("odd", lambda _: value, measured) is None


def test_domains_to_come_count_among_all_that_was_tested_and_not_among_what_was_seen() -> None:
    history = History(("safe",))
    line = history.add({"safe": [1.0, 0.5, 0.0]}, [10, 10, 20])
    assert line["pooled"]["safe"] == pytest.approx(15 / 40) and line["seen"]["safe"] == 1.0
    line = history.add({"safe": [0.9, 0.7, 0.2]}, [10, 10, 20])
    assert line["seen"]["safe"] == pytest.approx(0.8)
    assert history.summary()["average_seen"]["safe"] == pytest.approx(0.9)


def test_validation_is_noted_beside_the_test_and_summed_up() -> None:
    history = History(("slow", "safe"))
    for t in (1, 2):
        found = {"slow": [0.25] * t, "safe": [0.5] * (t - 1) + [1.0]}
        line = history.add(
            {"slow": [0.0] * t, "safe": [0.0] * t}, [4] * t, validation=(found, [2, 6][:t])
        )
        assert (
            line["validation"]["counts"] == [2, 6][:t] and line["validation"]["accuracy"] == found
        )
    summary = history.summary()["validation"]
    assert summary["final"]["safe"] == pytest.approx((2 * 0.5 + 6 * 1.0) / 8)
    assert summary["average"]["safe"] == pytest.approx((1.0 + 7 / 8) / 2)
    history.add({"slow": [0.0] * 3, "safe": [0.0] * 3}, [4] * 3)
    assert "validation" not in history.summary()  # it has to be there after every session
