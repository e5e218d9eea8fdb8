"""The table of a sweep: a row a configuration, mean and standard deviation over seeds; as CSV and LaTeX too."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from safecl.atomic import write_bytes
from safecl.experiments.sweep.objective import validation
from safecl.experiments.sweep.plan import METHOD, Cell, spelt_settings
from safecl.lines import NBSP
from safecl.report import words
from safecl.report.formats import escaped
from safecl.report.runs import Run
from safecl.report.series import Series, all_series
from safecl.report.tables import Cell as Text
from safecl.report.tables import Table

# Keys that have a column of their own, or none: seeds are what a row is a mean over.
NAMED = METHOD | {"stream", "stream.kind", "stream.name", "pet", "pet.kind", "backbone", "backbone.name", "seed"}


@dataclass(frozen=True)
class Measure:
    """A number of a run: its name in files, its head in tables, and how its mean is written."""

    name: str
    head: str
    of: Callable[[Series], float | None]
    text: Callable[[float | None], str]
    unit: float = 1.0  # how many of those that ``text`` writes there are in 1


MEASURES = (
    Measure("final", "Final accuracy", lambda one: one.final, words.bare_percent, 100),
    Measure("average", "Average accuracy", lambda one: one.average_seen, words.bare_percent, 100),
    Measure("forgetting", "Forgetting", lambda one: one.forgetting, words.points, 100),
    Measure("learnable", "Learnable", lambda one: one.run.parameters.learnable, words.count),
    Measure("stored_bytes", "Stored", lambda one: one.run.last.bytes_kept if one.run.last else None, words.size),
    Measure("seconds", "Time", lambda one: one.run.seconds, words.duration),
)
PLUS_MINUS = ("final", "average", "forgetting", "objective")  # measures whose deviation is written beside them


@dataclass(frozen=True)
class Row:
    """A configuration: what tells it from the others, its runs, how many are finished, and its numbers.

    ``numbers``: by measure, those of each finished run that has one.
    """

    labels: tuple[str, ...]
    runs: int
    finished: int
    numbers: Mapping[str, list[float]]
    stream: str
    best: bool = False

    def mean(self, name: str) -> float | None:
        return mean(self.numbers[name]) if self.numbers[name] else None

    def deviation(self, name: str) -> float | None:
        """The sample standard deviation over seeds; None of fewer than two."""
        return stdev(self.numbers[name]) if len(self.numbers[name]) > 1 else None


@dataclass(frozen=True)
class Results:
    """The table: heads of the labels, measures, rows. ``objective``: by which the best row is marked."""

    labels: tuple[str, ...]
    measures: tuple[Measure, ...]
    rows: list[Row]
    objective: str | None = None


def collect(cells: Sequence[Cell], runs: Mapping[str, Run], objective: str | None = None) -> Results:
    """``runs``: the finished ones by the names of their cells."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.configuration, []).append(cell)
    firsts = [group[0] for group in groups.values()]
    heads, labels = _labels(firsts, [key for cell in cells for key in cell.varied])
    measures: tuple[Measure, ...] = MEASURES
    if objective is not None:
        chosen = Measure("objective", objective, lambda one: validation(one.run, objective), words.bare_percent, 100)
        measures = (chosen, *MEASURES)
    rows = []
    for group, label in zip(groups.values(), labels, strict=True):
        series = [all_series([runs[cell.name]])[0] for cell in group if cell.name in runs]  # the main output is first
        values = {one.name: [one.of(each) for each in series] for one in measures}
        numbers = {name: [value for value in each if value is not None] for name, each in values.items()}
        rows.append(Row(label, len(group), len(series), numbers, group[0].settings.stream.title))
    return Results(heads, measures, _marked(rows, "objective" if objective else "final"), objective)


def _marked(rows: list[Row], name: str) -> list[Row]:
    """The rows, the best of each stream marked, where there are several to choose from."""
    marked = []
    for row in rows:
        others = [one.mean(name) for one in rows if one.stream == row.stream]
        found = [value for value in others if value is not None]
        best = len(found) > 1 and row.mean(name) == max(found)
        marked.append(Row(row.labels, row.runs, row.finished, row.numbers, row.stream, best))
    return marked


def _labels(cells: Sequence[Cell], varied: Sequence[str]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """What tells configurations apart: method, and those of stream, PET, backbone and varied keys that differ."""
    settings = [spelt_settings(cell.settings) for cell in cells]
    titles = [cell.settings.method.title for cell in cells]
    sources: dict[str, set[str]] = {}
    for cell, title in zip(cells, titles, strict=True):
        sources.setdefault(title, set()).add(cell.settings.preset)
    names = [
        f"{title} ({cell.settings.preset})" if len(sources[title]) > 1 and cell.settings.preset else title
        for cell, title in zip(cells, titles, strict=True)
    ]
    columns: dict[str, list[str]] = {"Method": names}
    keys = {"Stream": "stream", "PET": "pet", "Backbone": "backbone"}
    keys |= {key: key for key in dict.fromkeys(varied) if key not in NAMED}
    for head, key in keys.items():
        values = [_value(each.get(key)) for each in settings]
        if len(set(values)) > 1 and not _told(values, columns.get(key.partition(".")[0].capitalize(), [])):
            columns[head] = values
    return tuple(columns), list(zip(*columns.values(), strict=True))


def _told(values: Sequence[str], name: Sequence[str]) -> bool:
    """Whether each stream or backbone has one value, so that its name tells it."""
    return bool(name) and len(set(zip(name, values, strict=True))) == len(set(name))


def _value(value: Any) -> str:
    return words.NONE if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def as_table(results: Results, title: str) -> Table:
    """For the terminal and the page."""
    leads = [*results.labels, "Runs", *(measure.head for measure in results.measures)]
    marked = "objective" if results.objective else "final"
    rows = []
    for row in results.rows:
        cells = [Text(label) for label in row.labels]
        cells.append(Text(f"{row.finished}/{row.runs}" if row.finished < row.runs else str(row.runs)))
        cells += [Text(_text(row, one), best=row.best and one.name == marked) for one in results.measures]
        rows.append(cells)
    return Table(title, leads, [], rows)


def _text(row: Row, measure: Measure, sign: str = f"{NBSP}±{NBSP}") -> str:
    """ "71.2 ± 2.0": the mean and, where it says something, the standard deviation over seeds."""
    deviation = row.deviation(measure.name) if measure.name in PLUS_MINUS else None
    more = "" if deviation is None else f"{sign}{measure.unit * deviation:.1f}"
    return f"{measure.text(row.mean(measure.name))}{more}"


def as_csv(results: Results) -> str:
    """A line a configuration, in units of 1: accuracies are fractions, times seconds."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    heads = [f"{measure.name}_{kind}" for measure in results.measures for kind in ("mean", "std")]
    writer.writerow([*(label.lower() for label in results.labels), "runs", "finished", *heads, "best"])
    for row in results.rows:
        numbers = [value for one in results.measures for value in (row.mean(one.name), row.deviation(one.name))]
        plain = ["" if value is None else f"{value:.6g}" for value in numbers]
        writer.writerow([*row.labels, row.runs, row.finished, *plain, int(row.best)])
    return file.getvalue()


def runs_csv(cells: Sequence[Cell], states: Mapping[str, str], runs: Mapping[str, Run], objective: str | None) -> str:
    """A line a run: its settings that vary, its folder, its state, its numbers."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    keys = list(dict.fromkeys(key for cell in cells for key in cell.varied))
    names = [measure.name for measure in MEASURES] + (["objective"] if objective else [])
    writer.writerow([*keys, "folder", "state", *names])
    for cell in cells:
        run = runs.get(cell.name)
        series = all_series([run])[0] if run else None
        numbers = [measure.of(series) if series else None for measure in MEASURES]
        numbers += [validation(run, objective) if run else None] if objective else []
        plain = ["" if value is None else f"{value:.6g}" for value in numbers]
        writer.writerow([*(cell.varied.get(key, "") for key in keys), cell.name, states[cell.name], *plain])
    return file.getvalue()


def as_latex(results: Results) -> str:
    """A table for ``booktabs``; accuracies in percent, the best of each stream bold."""
    count, marked = len(results.labels), "objective" if results.objective else "final"
    lines = [f"\\begin{{tabular}}{{{'l' * count}{'r' * len(results.measures)}}}", "\\toprule"]
    heads = [*results.labels, *(measure.head for measure in results.measures)]
    lines += [" & ".join(map(escaped, heads)) + r" \\", "\\midrule"]
    for row in results.rows:
        cells = [escaped(label) for label in row.labels]
        for one in results.measures:
            number, plus, deviation = map(escaped, _text(row, one, "±").partition("±"))
            number = f"\\textbf{{{number}}}" if row.best and one.name == marked else number
            cells.append(f"{number} {plus} {deviation}" if plus else number)
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


def write_text(path: Path, text: str) -> Path:
    write_bytes(path, text.encode())
    return path
