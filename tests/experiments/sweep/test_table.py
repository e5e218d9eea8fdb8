"""The table of a sweep: what its rows are, and its numbers against numpy's."""

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from safecl.experiments.config import load
from safecl.experiments.sweep.plan import Cell
from safecl.experiments.sweep.table import as_table
from safecl.report.runs import Facts, Metrics, Run
from safecl.report.table import Table, as_csv, as_latex, escaped


def make_cell(preset: str, seed: int, **varied: Any) -> Cell:
    keys = {"preset": preset, "seed": seed, **varied}
    words = [f"{key}={value}" for key, value in keys.items() if key != "preset"]
    return Cell(keys, load(preset, words))


def make_run(cell: Cell, rows: list[list[float]], held_out: list[float] | None = None) -> Run:
    """A finished run with the matrix R of a class-incremental stream, 10 test pictures a
    session.
    """
    main = cell.settings.method.name
    facts = {
        "method": main,
        "title": cell.settings.method.title,
        "main": main,
        "outputs": [main],
        "stream": {"name": "glyphs", "sessions": [{"name": "s"}] * len(rows)},
    }
    metrics = []
    for t, row in enumerate(rows, 1):
        best = [max(rows[s][i] for s in range(i, t - 1)) for i in range(t - 1)]
        lost = float(np.mean(np.array(best) - row[: t - 1])) if best else 0.0
        line: dict[str, Any] = {
            "session": t,
            "test_counts": [10] * t,
            "accuracy": {main: row},
            "pooled": {main: float(np.mean(row))},
            "seen": {main: float(np.mean(row))},
            "forgetting": {main: lost},
            "seconds": {"total": 2.0},
            "bytes_kept": 2_000_000,
            "parameters": {"learnable": 12345, "stored": 99},
        }
        if held_out is not None:
            line["validation"] = {"counts": [2], "pooled": {main: held_out[t - 1]}}
        metrics.append(Metrics.model_validate(line))
    return Run(Path(cell.name), Facts.model_validate(facts), metrics, True, "", "")


ROWS = {0: [[0.9], [0.8, 0.7]], 1: [[1.0], [0.5, 0.6]], 2: [[0.8], [0.8, 0.2]]}


@pytest.fixture
def three_seeds() -> Table:
    cells = [make_cell(preset, seed) for preset in ("safe", "ranpac") for seed in ROWS]
    better = {
        seed: [[value + (0.1 if value < 0.9 else 0.0) for value in row] for row in rows]
        for seed, rows in ROWS.items()
    }
    runs = {
        cell.name: make_run(
            cell, (ROWS if cell.varied["preset"] == "safe" else better)[cell.settings.seed]
        )
        for cell in cells
    }
    return as_table("t", cells, runs)


def column(table: Table, name: str) -> list[Any]:
    (place,) = [i for i, found in enumerate(table.columns) if found.name == name]
    return [row[place] for row in table.rows]


def labels(table: Table) -> list[tuple[str, ...]]:
    heads = [i for i, found in enumerate(table.columns) if found.words]
    return [tuple(row[i].text for i in heads) for row in table.rows]


def heads(table: Table) -> tuple[str, ...]:
    return tuple(found.name for found in table.columns if found.words)


def test_a_row_is_mean_and_sample_deviation_over_seeds(three_seeds: Table) -> None:
    final = np.array([0.75, 0.55, 0.5])
    average = np.array([(0.9 + 0.75) / 2, (1.0 + 0.55) / 2, (0.8 + 0.5) / 2])
    forgetting = np.array([0.1, 0.5, 0.0])
    for name, values in {
        "Final accuracy": final,
        "Average accuracy": average,
        "Forgetting": forgetting,
    }.items():
        safe, _ = column(three_seeds, name)
        assert safe.value == pytest.approx(values.mean()) and safe.spread == pytest.approx(
            values.std(ddof=1)
        )
    others = [column(three_seeds, name)[0].value for name in ("Learnable", "Stored", "Time")]
    assert others == [12345, 2_000_000, 4.0]
    assert (
        labels(three_seeds) == [("SAFE",), ("RanPAC",)]
        and column(three_seeds, "Runs")[0].text == "3"
    )
    assert [cell.best for cell in column(three_seeds, "Final accuracy")] == [False, True]


def test_rows_are_told_apart_by_what_differs() -> None:
    cells = [
        make_cell("safe", 0, pet="ssf"),
        make_cell("safe", 1, pet="ssf"),
        make_cell("safe", 0, pet="lora"),
        make_cell("paper", 0, backbone="safecl_micro"),
        make_cell("safe", 0, pet="ssf", **{"method.guide.lambda_cos": 2}),
        make_cell("simplecil", 0, stream="cifar100"),
    ]
    found = as_table("t", cells, {})
    assert heads(found) == ("Method", "Stream", "PET", "method.guide.lambda_cos")
    assert labels(found) == [
        ("SAFE (safe)", "glyphs", "ssf", "25.0"),
        ("SAFE (safe)", "glyphs", "lora", "25.0"),
        ("SAFE (paper)", "glyphs", "ssf", "50.0"),
        ("SAFE (safe)", "glyphs", "ssf", "2.0"),
        ("SimpleCIL", "cifar100", "none", "–"),
    ]
    assert [cell.text for cell in column(found, "Runs")] == ["0/2", "0/1", "0/1", "0/1", "0/1"]


def test_settings_that_the_name_of_a_stream_tells_have_no_column() -> None:
    cells = [make_cell("safe", 0, **{"stream": "folder:a", "stream.step": 2})]
    cells += [
        make_cell("safe", 0, **{"stream": "folder:b", "stream.step": step}) for step in (3, 3)
    ]
    assert heads(as_table("t", cells, {})) == ("Method", "Stream")
    cells.append(make_cell("safe", 0, **{"stream": "folder:b", "stream.step": 4}))
    assert heads(as_table("t", cells, {})) == ("Method", "Stream", "stream.step")


def test_what_is_not_finished_is_counted_and_has_no_number() -> None:
    cells = [make_cell("safe", seed) for seed in range(3)] + [make_cell("aper", 0)]
    found = as_table("t", cells, {cells[0].name: make_run(cells[0], ROWS[0])})
    texts = [[cell.text.replace("\u00a0", " ") for cell in row] for row in found.rows]
    assert "1/3" in texts[0] and "75.0" in texts[0] and "0/1" in texts[1] and texts[1][-1] == "–"
    assert column(found, "Final accuracy")[0].spread is None


def test_an_objective_marks_the_best_by_validation_and_not_by_test() -> None:
    cells = [make_cell("safe", 0), make_cell("ranpac", 0)]
    runs = {
        cells[0].name: make_run(cells[0], ROWS[0], [0.5, 0.9]),
        cells[1].name: make_run(cells[1], ROWS[1], [0.9, 0.6]),
    }
    final = column(as_table("t", cells, runs, "validation.final"), "validation.final")
    average = column(as_table("t", cells, runs, "validation.average"), "validation.average")
    assert [cell.best for cell in final] == [True, False] and [cell.best for cell in average] == [
        False,
        True,
    ]
    assert (
        final[0].value == 0.9
        and average[1].value == pytest.approx(0.75)
        and final[0].text == "90.0"
    )


def test_the_best_is_the_best_of_its_stream() -> None:
    cells = [
        make_cell(preset, 0, stream=stream)
        for preset in ("safe", "ranpac")
        for stream in ("glyphs", "cub")
    ]
    finals = [0.6, 0.9, 0.7, 0.8]  # safe on glyphs and on cub, ranpac on glyphs and on cub
    runs = {cell.name: make_run(cell, [[final]]) for cell, final in zip(cells, finals, strict=True)}
    assert [cell.best for cell in column(as_table("t", cells, runs), "Final accuracy")] == [
        False,
        True,
        True,
        False,
    ]


def test_csv_holds_every_number_again(three_seeds: Table) -> None:
    lines = list(csv.DictReader(as_csv(three_seeds).splitlines()))
    assert [line["Method"] for line in lines] == ["SAFE", "RanPAC"] and lines[0]["Runs"] == "3"
    for name in ("Final accuracy", "Average accuracy", "Forgetting", "Learnable", "Stored", "Time"):
        for line, cell in zip(lines, column(three_seeds, name), strict=True):
            assert float(line[name]) == pytest.approx(cell.value, rel=1e-5)
            assert cell.spread is None or float(line[f"{name} ±"]) == pytest.approx(
                cell.spread, rel=1e-5, abs=1e-9
            )


def test_latex_has_as_many_cells_a_line_as_columns_and_the_best_in_bold(three_seeds: Table) -> None:
    text = as_latex(three_seeds)
    found = re.search(r"\\begin{tabular}{(l+r+)}", text)
    assert found is not None and [
        text.count(f"\\{rule}") for rule in ("toprule", "midrule", "bottomrule")
    ] == [1, 1, 1]
    lines = [line for line in text.splitlines() if line.endswith(r" \\")]
    assert {line.count(" & ") + 1 for line in lines} == {len(found[1])} and len(lines) == 3
    assert r"\textbf" in lines[2] and r"\textbf" not in lines[1] and r"60.0~$\pm$~13.2" in lines[1]
    assert "\u00a0" not in text and "±" not in text


def test_characters_of_latex_are_written_as_text() -> None:
    assert escaped("vpt_deep 5% & {a}") == r"vpt\_deep 5\% \& \{a\}"
    assert escaped("\\^~–−") == r"\textbackslash{}\textasciicircum{}\textasciitilde{}--$-$"
