"""The targets are the paper's tables and figures, and their numbers agree with each other as they
do in the paper.
"""

from statistics import mean

import pytest

from safecl.experiments.config import presets, shipped
from safecl.experiments.reproduce.targets import BASELINE, TARGETS, Row, read_target
from tests.conftest import raises

TABLES = (
    "sota",
    "domainnet",
    "ablation",
    "aggregation",
    "slow",
    "fast",
    "pet",
    "lambda-cos",
    "gamma",
    "teacher",
)
FIGURES = ("sensitivity", "tsne", "sessions", "weights", "parameters", "datasets", "overview")


def row(target: str, label: str) -> Row:
    return next(one for one in read_target(target).rows if one.label == label)


def test_every_table_and_figure_of_the_paper_is_a_target() -> None:
    assert set(TARGETS) == set(shipped("reproduce", "targets"))
    assert set(TARGETS) == {
        *(f"table-{name}" for name in TABLES),
        *(f"fig-{name}" for name in FIGURES),
    }
    for name in TARGETS:
        target = read_target(name)
        assert (
            target.title
            and target.caption
            and (target.kind == "table") == name.startswith("table-")
        )


@pytest.mark.parametrize("name", [f"table-{name}" for name in TABLES])
def test_every_row_of_a_table_has_the_papers_numbers(name: str) -> None:
    assert all(len(one.paper) == len(read_target(name).columns) for one in read_target(name).rows)


@pytest.mark.parametrize("name", ["table-sota", "table-pet"])
def test_the_printed_average_is_the_mean_of_the_row(name: str) -> None:
    for one in read_target(name).rows:
        numbers = [value for value in one.paper[:-1] if value is not None]
        if one.paper[-1] is not None:
            assert mean(numbers) == pytest.approx(one.paper[-1], abs=0.051)


def test_the_main_table_has_six_datasets_and_nine_methods() -> None:
    target = read_target("table-sota")
    assert (
        len(target.rows) == 9 and len([column for column in target.columns if column.stream]) == 6
    )


def test_what_two_tables_show_has_the_same_numbers() -> None:
    ablation = {one.label: one.paper for one in read_target("table-ablation").rows}
    assert ablation["Slow learner"] == row("table-slow", "Baseline + L_slow (slow learner)").paper
    assert ablation["Fast learner"] == row("table-fast", "Fast learner (both)").paper
    assert ablation["Fast learner"] == row("table-teacher", "Slow learner").paper
    assert ablation["Baseline (RanPAC)"] == row("table-slow", "Baseline (RanPAC)").paper
    assert row("table-teacher", "None").paper == row("table-fast", "Fine-tuned directly").paper
    assert row("table-gamma", "SAFE").paper[0] == row("table-aggregation", "Logits added").paper[0]
    assert row("table-lambda-cos", "Fast learner").paper[4] == ablation["Fast learner"][0]


def test_an_unknown_target_is_answered_with_the_nearest_one() -> None:
    with raises("name.unknown.near", near="table-ablation"):
        read_target("table-ablations")


@pytest.mark.parametrize("name", TARGETS)
def test_rows_columns_and_claims_of_a_target_fit_each_other(name: str) -> None:
    target = read_target(name)
    for one in target.rows:
        assert len(one.paper) in (0, len(target.columns)) and one.run in (*presets(), BASELINE)
    labels = {one.label for one in target.rows}
    assert all({claim.row, *claim.over} <= labels for claim in target.claims)
