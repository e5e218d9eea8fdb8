"""Single figures can be drawn to any format, and leave matplotlib as they found it."""

import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from safecl.report import figures
from safecl.report.drawing import canvas
from safecl.report.page import all_figures
from safecl.report.panels import Panel
from safecl.report.runs import Run, read_run
from safecl.report.series import all_series
from safecl.report.tables import costs


def drawn(runs: list[Run]) -> list[Figure]:
    return [figure for _, figure in all_figures(runs)]


def axes_of(draw: Callable[..., None], *data: Any) -> Axes:
    with canvas((4, 3)) as (_, (axes,)):
        draw(axes, *data)
    return axes


def test_each_figure_saves(make_run: Any) -> None:
    for figure in drawn([read_run(make_run(sessions=2, held_out=True))]):
        for kind in ("png", "pdf"):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, dpi=40)
            assert buffer.tell() > 1000


def test_of_a_run_with_nothing_finished_nothing_is_drawn(make_run: Any) -> None:
    assert drawn([read_run(make_run(done=0))]) == []


def test_the_legend_of_a_file_covers_no_line_and_its_title_is_no_formula() -> None:
    figure = Panel("$5", "file", partial(lines, count=9)).figure()
    (axes,), (legend,) = figure.axes, figure.legends
    figure.draw_without_rendering()
    assert axes.get_title() == "$5" and not axes.title.get_parse_math()
    assert (
        legend.get_window_extent().y1 <= axes.get_window_extent().y0
        and len(legend.get_texts()) == 9
    )


def lines(axes: Axes, count: int) -> None:
    for i in range(count):
        axes.plot([0, 1], [i, i], label=str(i))


def test_drawing_changes_no_settings(make_run: Any) -> None:
    before = dict(mpl.rcParams)
    drawn([read_run(make_run())])
    assert dict(mpl.rcParams) == before


def test_curves_are_the_pooled_accuracies(make_run: Any) -> None:
    run = read_run(make_run())
    lines = {
        line.get_label(): line for line in axes_of(figures.accuracy_curves, all_series([run])).lines
    }
    assert set(lines) == {"SAFE", "Slow", "Fast"}
    assert list(lines["SAFE"].get_ydata()) == [line.pooled["safe"] for line in run.metrics]


def test_steps_written_twice_by_a_resumed_run_are_drawn_once(make_run: Any) -> None:
    folder: Path = make_run()
    path = folder / "losses.jsonl"
    path.write_text(path.read_text() * 2)
    assert len(read_run(folder).losses) == 5 * 40


def test_every_term_has_a_line_and_phases_of_a_kind_share_a_figure(make_run: Any) -> None:
    run = read_run(make_run())
    assert figures.phases(run) == ["slow", "fast"]
    axes = axes_of(figures.loss_curves, run, "fast")
    assert axes.get_legend_handles_labels()[1] == ["total", "cls", "diag"]
    for i, line in enumerate(run.losses):
        run.losses[i] = line.model_copy(update={"phase": f"pilot{i % 3 + 1}"})
    assert figures.phases(run) == ["pilot"]


def test_the_parts_of_a_sessions_time_are_its_phases_and_stages(make_run: Any) -> None:
    run = read_run(make_run())
    table = costs(run, "Time")
    assert table is not None
    assert [column.name for column in table.columns[1:6]] == [
        "Slow",
        "Fast",
        "Statistics",
        "Evaluate",
        "Total",
    ]
    for row in table.rows:
        slow, fast, statistics, evaluate, total = (cell.value or 0.0 for cell in row[1:6])
        assert slow + fast + statistics + evaluate == pytest.approx(total)


def test_the_band_of_a_curve_is_one_standard_deviation_of_the_seeds(make_run: Any) -> None:
    runs = [read_run(make_run(f"s{seed}", seed=seed, method="ranpac")) for seed in (0, 1, 2)]
    axes = axes_of(figures.accuracy_curves, all_series(runs, fold_seeds=True))
    (band,) = axes.collections
    last = [run.metrics[-1].pooled["ranpac"] for run in runs]
    heights = [y for x, y in band.get_paths()[0].vertices if x == 5]
    assert min(heights) == pytest.approx(mean(last) - stdev(last))
    assert max(heights) == pytest.approx(mean(last) + stdev(last))
