"""Ours beside the paper's: numbers, differences, means, claims, and the tables made of them."""

import csv
import io
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from safecl.experiments.reproduce.plan import Job, make_job
from safecl.experiments.reproduce.results import Line, Shown, fill, judge, target_table
from safecl.experiments.reproduce.targets import read_scale, read_target
from safecl.report.runs import Run, read_run
from safecl.report.table import as_csv, as_latex, as_markdown


@pytest.fixture
def finished(tmp_path: Path) -> Any:
    """``finished(job, value)``: a finished run for every cell; ``value(cell, output)`` is its
    accuracy.
    """
    import json

    def make(job: Job, value: Any) -> dict[str, Run]:
        found = {}
        for cell in job.cells:
            method = cell.settings.method.name
            folder = tmp_path / cell.name
            outputs = ["slow", "fast", "safe"] if method == "safe" else [method]
            stream = {"name": "x", "sessions": [{"name": "1"}, {"name": "2"}]}
            about = {
                "method": method,
                "title": method,
                "main": outputs[-1],
                "outputs": outputs,
                "stream": stream,
            }
            folder.mkdir(exist_ok=True)
            (folder / "facts.json").write_text(json.dumps(about))
            numbers = {output: value(cell, output) for output in outputs}
            first = {output: number + 0.1 for output, number in numbers.items()}
            sizes = {"learnable": 1234567, "stored": 1}
            ends = ((1, first), (2, numbers))
            lines = [{"session": t, "pooled": p, "seen": p, "parameters": sizes} for t, p in ends]
            (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
            (folder / "summary.json").write_text("{}")
            found[cell.name] = read_run(folder)
        return found

    return make


def nothing(*_: Any) -> float | None:
    return None


def test_a_cell_has_the_mean_and_deviation_over_seeds_and_the_difference_to_the_paper(
    finished: Any,
) -> None:
    job = make_job(read_target("table-ablation"), read_scale("small"), "safe", repeat=3)
    ours = {
        "slow": [0.6, 0.62, 0.64],
        "fast": [0.5, 0.5, 0.5],
        "safe": [0.7, 0.71, 0.72],
        "ranpac": [0.3, 0.3, 0.3],
    }
    lines = fill(job, finished(job, lambda cell, output: ours[output][cell.settings.seed]), nothing)
    for line, output in zip(lines, ("ranpac", "slow", "fast", "safe"), strict=True):
        final, average = line.cells
        wanted = [100 * value for value in ours[output]]
        assert final.mean == pytest.approx(mean(wanted)) and final.deviation == pytest.approx(
            stdev(wanted)
        )
        assert average.mean == pytest.approx(mean(wanted) + 5)
        assert final.paper is not None and final.difference == pytest.approx(
            mean(wanted) - final.paper
        )
    held = [outcome.holds for outcome in judge(job.target, lines)]
    assert held == [True, False, True]


def test_an_output_that_a_run_does_not_have_gives_no_number(finished: Any) -> None:
    job = make_job(read_target("table-ablation"), read_scale("small"), "safe")
    runs = finished(job, lambda cell, output: 0.5)
    rows = [
        row.model_copy(update={"output": "medium"}) if row.output == "slow" else row
        for row in job.rows
    ]
    entries = [entry._replace(row=rows[job.rows.index(entry.row)]) for entry in job.entries]
    lines = fill(replace(job, rows=rows, entries=entries), runs, nothing)
    assert [line.cells[0].ours for line in lines] == [(50.0,), (None,), (50.0,), (50.0,)]


def test_a_claim_is_judged_by_its_smallest_margin_seed_by_seed() -> None:
    target = read_target("table-teacher")
    values = {"None": (1.0, 2.0), "PTM": (40.0, 50.0), "Fast learner of session t−1": (10.0, 10.0)}
    lines = [Line(label, [Shown(ours), Shown(measure="average")]) for label, ours in values.items()]
    lines.append(Line("Slow learner", [Shown((41.0, 53.0)), Shown(measure="average")]))
    (outcome,) = judge(target, lines)
    assert (
        outcome.rival == "PTM" and outcome.margin is not None and outcome.margin.found == [1.0, 3.0]
    )
    assert "holds, by +2.00 points ± 1.41 over 2 seeds against PTM" in str(outcome)
    assert "numbers are missing" in str(
        judge(target, [Line(line.label, [Shown(), Shown()]) for line in lines])[0]
    )


def test_the_mean_column_is_over_the_columns_that_are_there(finished: Any, tmp_path: Path) -> None:
    job = make_job(read_target("table-sota"), read_scale("assets", tmp_path), "safe", repeat=1)
    by_stream = {"cifar100": 0.5, "flowers102": 0.9}
    runs = finished(job, lambda cell, output: by_stream[cell.varied["stream"]])
    safe = fill(job, runs, nothing)[-1]
    assert [cell.mean for cell in safe.cells] == pytest.approx([50, 90, 70])
    assert [cell.paper for cell in safe.cells] == pytest.approx([92.8, 91.1, (92.8 + 91.1) / 2])
    lost = next(cell for cell in job.cells if cell.settings.method.name == "safe")
    del runs[lost.name]
    assert [cell.mean for cell in fill(job, runs, nothing)[-1].cells] == [
        None,
        pytest.approx(90),
        None,
    ]


def test_a_single_column_has_no_mean(finished: Any) -> None:
    job = make_job(read_target("table-sota"), read_scale("small"), "safe", repeat=1)
    assert [column.label for column in job.columns] == ["CIFAR"]
    lines = fill(job, finished(job, lambda *_: 0.5), nothing)
    assert {len(line.cells) for line in lines} == {1} and judge(job.target, lines)[
        0
    ].margin is not None


def test_the_papers_numbers_have_the_decimals_that_it_prints() -> None:
    lines = [
        Line("a", [Shown((1.0,), 74.5), Shown((1.0,), 62.21)]),
        Line("b", [Shown((1.0,), 73.0), Shown()]),
    ]
    assert [row[2].text for row in target_table(["x", "y"], lines).rows] == ["74.50", "73.00"]
    firsts = [Line(line.label, line.cells[:1]) for line in lines]
    assert [row[2].text for row in target_table(["x"], firsts).rows] == ["74.5", "73.0"]


def test_with_all_columns_the_papers_own_mean_is_shown(finished: Any) -> None:
    job = make_job(read_target("table-sota"), read_scale("paper"), "paper", repeat=1)
    last = [line.cells[-1] for line in fill(job, finished(job, lambda *_: 0.5), nothing)]
    assert [cell.paper for cell in last] == [row.paper[-1] for row in job.target.rows]


def test_an_answer_is_asked_of_the_finished_run(finished: Any) -> None:
    job = make_job(read_target("table-gamma"), read_scale("small"), "safe", repeat=1)
    (line,) = fill(job, finished(job, lambda *_: 0.5), lambda cell, answer: answer["gamma"] / 1000)
    assert [cell.mean for cell in line.cells] == pytest.approx([0, 0.01, 0.1, 0.5, 1, 10])
    # without it γ means nothing
    assert {column.answer["aggregation"] for column in job.columns} == {"entropy"}


LINES = [
    Line("Base | line", [Shown((50.0, 52.0), 62.21), Shown((1234567.0,), None, "learnable")]),
    Line("L_s↔f & λ", [Shown((), 8.16), Shown((), None, "learnable")]),
]


def test_a_csv_file_has_all_digits_the_spread_and_the_papers_numbers() -> None:
    first, second = csv.DictReader(io.StringIO(as_csv(target_table(["Final", "Learnable"], LINES))))
    assert (
        float(first["Final ours ±"]) == pytest.approx(2**0.5, abs=1e-5)
        and first["Learnable ours"] == "1.23457e+06"
    )
    assert (first["Final ours"], first["Final paper"], first["Final diff."]) == (
        "51",
        "62.21",
        "-11.21",
    )
    assert (second["Final ours"], second["Final paper"], second["Final diff."]) == ("", "8.16", "")


def test_markdown_and_latex_show_ours_the_papers_and_the_difference() -> None:
    table = target_table(["Final", "Learnable"], LINES)
    text = as_markdown(table)
    assert "| Final ours | Final paper | Final diff. | Learnable ours |" in text
    assert r"| Base \| line | 51.0 ± 1.4 | 62.21 | −11.2 | 1,234,567 |" in text
    assert "| L_s↔f & λ | – | 8.16 | – | – |" in text
    latex = as_latex(table, "A caption")
    assert r"\multicolumn{3}{c}{Final} & \multicolumn{1}{c}{Learnable} \\" in latex
    assert r"L\_s$\leftrightarrow$f \& $\lambda$ & -- & 8.16 & -- & -- \\" in latex
    assert r"51.0~$\pm$~1.4 & 62.21 & $-$11.2" in latex and latex.count(r"\\") == 4
