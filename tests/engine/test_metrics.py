"""Accuracy and forgetting against their definitions, on random matrices with tests of unequal
size.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import recall_score, roc_auc_score

from safecl import run
from safecl.atomic import read_lines
from safecl.engine.metrics import METRICS, NAMED, Measured, mean, pooled
from safecl.engine.metrics.history import History, measure
from safecl.experiments.config import load
from tests.conftest import raises


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


def answered(seed: int, pictures: int, classes: int) -> tuple[torch.Tensor, ...]:
    """Targets, of which some are of no known class; answers, and how sure each is."""
    random = np.random.default_rng(seed)
    targets = random.integers(-1, classes, pictures)
    said = np.where(random.random(pictures) < 0.6, targets.clip(0), random.integers(0, classes))
    return torch.tensor(targets), torch.tensor(said), torch.tensor(random.random(pictures)).float()


@given(st.integers(0, 2**31), st.integers(1, 7), st.booleans())
def test_transfers_are_the_printed_sums(seed: int, t: int, domain: bool) -> None:
    rows = matrix(seed, t, domain)
    r = {(i + 1, j + 1): value for i, row in enumerate(rows) for j, value in enumerate(row)}
    classes = [4 + 2 * i for i in range(t)]
    measured = Measured(rows, [1] * len(rows[-1]), t, classes=classes)
    learned = [r[i, i] for i in range(1, t + 1)]
    assert METRICS["plasticity"](measured) == pytest.approx(np.mean(learned))
    back = [r[t, i] - r[i, i] for i in range(1, t)]
    ahead = [r[i - 1, i] - 1 / classes[i - 2] for i in range(2, t + 1) if (i - 1, i) in r]
    for name, values in (("backward_transfer", back), ("forward_transfer", ahead)):
        expected = pytest.approx(np.mean(values)) if values else None
        assert METRICS[name](measured) == expected
    assert bool(ahead) == (domain and t > 1)


@given(st.integers(0, 2**31), st.integers(1, 60), st.integers(1, 9))
def test_accuracies_of_classes_are_those_of_scikit_learn(seed: int, n: int, classes: int) -> None:
    targets, said, _ = answered(seed, n, classes)
    measured = Measured([[0.5]], [n], 1, targets, said)
    known = targets >= 0
    if not known.any():
        assert METRICS["class_mean"](measured) is METRICS["worst_class"](measured) is None
        return
    there = np.unique(targets[known])
    recalls = recall_score(targets[known], said[known], labels=there, average=None, zero_division=0)
    assert METRICS["class_mean"](measured) == pytest.approx(recalls.mean())
    assert METRICS["worst_class"](measured) == pytest.approx(recalls.min())


@given(st.integers(0, 2**31), st.integers(1, 60))
def test_the_calibration_error_is_the_mean_gap_of_fifteen_bins(seed: int, n: int) -> None:
    targets, said, sure = answered(seed, n, 5)
    right = (targets == said).numpy()
    bins = np.clip(np.ceil(sure.double().numpy() * 15), 1, 15)
    gaps = [
        (bins == b).mean() * abs(right[bins == b].mean() - sure.numpy()[bins == b].mean())
        for b in np.unique(bins)
    ]
    found = METRICS["calibration_error"](Measured([[0.5]], [n], 1, targets, said, sure))
    assert found == pytest.approx(sum(gaps), abs=1e-6)


@given(st.integers(0, 2**31), st.integers(1, 60))
def test_strangers_are_told_as_scikit_learn_counts(seed: int, n: int) -> None:
    targets, said, sure = answered(seed, n, 2)
    sure = (sure * 5).round() / 5  # with ties
    found = METRICS["strangers"](Measured([[0.5]], [n], 1, targets, said, sure))
    known = targets.numpy() >= 0
    if known.all() or not known.any():
        assert found is None
    else:
        assert found == pytest.approx(roc_auc_score(known, sure.numpy()))


@given(st.integers(0, 2**31), st.integers(1, 6), st.booleans())
def test_the_area_over_seconds_is_the_mean_over_every_moment(
    seed: int, t: int, domain: bool
) -> None:
    rows = matrix(seed, t, domain)
    seconds = np.random.default_rng(seed).integers(1, 9, t).tolist()
    moments = [np.mean(rows[i - 1][:i]) if i else 0.0 for i in range(t) for _ in range(seconds[i])]
    measured = Measured(rows, [1] * len(rows[-1]), t, seconds=seconds)
    assert METRICS["auc_seconds"](measured) == pytest.approx(np.mean(moments))
    assert METRICS["worst_session"](measured) == min(rows[-1][:t])


def test_a_history_notes_the_metrics_that_are_named_and_no_others() -> None:
    history = History(("safe",), metrics=("plasticity", "auc_seconds"))
    history.add({"safe": [0.8]}, [10], seconds={"total": 3.0, "evaluate": 1.0})
    line = history.add({"safe": [0.6, 1.0]}, [10, 10], seconds={"total": 7.0, "evaluate": 1.0})
    assert line["metrics"] == {
        "plasticity": {"safe": pytest.approx(0.9)},
        "auc_seconds": {"safe": pytest.approx(0.8 * 6 / 8)},
    }
    assert history.summary()["metrics"] == line["metrics"]


def test_every_metric_that_can_be_named_has_a_number_after_a_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = ("stream=glyphs", "stream.classes=4", "stream.sessions=2", "stream.train=2")
    run("simplecil", *words, "stream.test=2", f"metrics=[{','.join(NAMED)}]", folder=folder)
    last = read_lines(folder / "metrics.jsonl", 2)[-1]
    assert set(last["metrics"]) == set(NAMED)
    none = {name for name, found in last["metrics"].items() if None in found.values()}
    assert none == {"forward_transfer", "strangers"}  # sessions to come are not tested here


def test_a_metric_that_is_not_there_is_refused_by_name() -> None:
    with raises("name.unknown.near", given="plasticty", near="plasticity"):
        load("simplecil", ["metrics=[plasticty]"])
