"""Single figures can be drawn to any format, and leave matplotlib as they found it."""

import io
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

from safecl.report import figures
from safecl.report.runs import Run, read_run
from safecl.report.series import all_series


def drawn(runs: list[Run]) -> list[Figure]:
    series = all_series(runs)
    return [
        figures.accuracy_curves(series),
        figures.session_bars(series),
        figures.matrix(series[0]),
        figures.loss_curves(runs[0]),
    ]


@pytest.mark.parametrize("kind", ["png", "pdf"])
def test_each_figure_saves(make_run: Any, kind: str) -> None:
    for figure in drawn([read_run(make_run())]):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, dpi=40)
        assert buffer.tell() > 1000


def test_nothing_finished_draws_empty_figures(make_run: Any) -> None:
    for figure in drawn([read_run(make_run(done=0))]):
        figure.savefig(io.BytesIO(), format="png", dpi=20)


def test_drawing_changes_no_settings(make_run: Any) -> None:
    before = dict(mpl.rcParams)
    drawn([read_run(make_run())])
    assert dict(mpl.rcParams) == before


def test_curves_are_the_pooled_accuracies(make_run: Any) -> None:
    run = read_run(make_run())
    lines = {line.get_label(): line for line in figures.accuracy_curves(all_series([run])).axes[0].lines}
    assert set(lines) == {"SAFE", "Slow", "Fast"}
    assert list(lines["SAFE"].get_ydata()) == [line.pooled["safe"] for line in run.metrics]


def test_matrix_has_a_cell_for_each_measurement(make_run: Any) -> None:
    shapes = [
        (read_run(make_run("class")), 15),  # 1 + 2 + 3 + 4 + 5
        (read_run(make_run("domain", protocol="domain", sessions=4)), 16),
    ]
    for run, cells in shapes:
        assert len(figures.matrix(all_series([run])[0]).axes[0].patches) == cells


def test_steps_written_twice_by_a_resumed_run_are_drawn_once(make_run: Any) -> None:
    folder: Path = make_run()
    path = folder / "losses.jsonl"
    path.write_text(path.read_text() * 2)
    assert len(read_run(folder).losses) == 5 * 40


def test_phases_of_a_kind_share_a_name_in_the_legend(make_run: Any) -> None:
    run = read_run(make_run())
    for i, line in enumerate(run.losses):
        run.losses[i] = line.model_copy(update={"phase": f"pilot{i % 3 + 1}"})
    (axes,) = figures.loss_curves(run).axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["pilot"]
