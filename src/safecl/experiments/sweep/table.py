"""The table of a sweep: one row per configuration, mean and standard deviation over seeds."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, stdev
from typing import Any, NamedTuple

from safecl.experiments.sweep.plan import METHOD, Cell, spelt_settings, validation
from safecl.lines import NBSP
from safecl.report import words
from safecl.report.runs import Run
from safecl.report.series import Series, all_series
from safecl.report.table import Cell as Text
from safecl.report.table import Table, as_csv, make_table, numbers

# Keys that have a column of their own, or none: seeds are what a row is a mean over.
NAMED = METHOD | {"stream", "stream.kind", "stream.name", "pet", "pet.kind", "backbone", "backbone.name", "seed"}


class Measure(NamedTuple):
    """A number of a run: its name in files, its head in tables, how its mean is written; whether with a spread."""

    name: str
    head: str
    of: Callable[[Series], float | None]
    text: Callable[[float | None], str]
    spread: bool = False


MEASURES = (
    Measure("final", "Final accuracy", lambda one: one.final, words.bare_percent, True),
    Measure("average", "Average accuracy", lambda one: one.average_seen, words.bare_percent, True),
    Measure("forgetting", "Forgetting", lambda one: one.forgetting, words.points, True),
    Measure("learnable", "Learnable", lambda one: one.run.parameters.learnable, words.count),
    Measure("stored_bytes", "Stored", lambda one: one.run.last.bytes_kept if one.run.last else None, words.size),
    Measure("seconds", "Time", lambda one: one.run.seconds, words.duration),
)


@dataclass(frozen=True)
class Row:
    """A configuration: what tells it from the others, its runs, and by measure the numbers of its finished ones."""

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


class Results(NamedTuple):
    labels: tuple[str, ...]  # the heads of those of the rows
    measures: tuple[Measure, ...]
    rows: list[Row]


def collect(cells: Sequence[Cell], runs: Mapping[str, Run], objective: str | None = None) -> Results:
    """The rows of a sweep; ``runs``: the finished ones by the names of their cells."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.configuration, []).append(cell)
    firsts = [group[0] for group in groups.values()]
    heads, labels = _labels(firsts, [key for cell in cells for key in cell.varied])
    measures = _measures(objective)
    rows: list[Row] = []
    for group, label in zip(groups.values(), labels, strict=True):
        series = [all_series([runs[cell.name]])[0] for cell in group if cell.name in runs]  # the main output is first
        numbers = {m.name: [value for one in series if (value := m.of(one)) is not None] for m in measures}
        rows.append(Row(label, len(group), len(series), numbers, group[0].settings.stream.title))
    return Results(heads, measures, [_marked(row, rows, measures[0].name) for row in rows])


def _measures(objective: str | None) -> tuple[Measure, ...]:
    """The first one decides which row is the best."""
    if objective is None:
        return MEASURES
    own = Measure("objective", objective, lambda one: validation(one.run, objective), words.bare_percent, True)
    return (own, *MEASURES)


def _marked(row: Row, rows: Sequence[Row], name: str) -> Row:
    """Marked if it is the best of its stream, where there are several to choose from."""
    means = [one.mean(name) for one in rows if one.stream == row.stream]
    found = [value for value in means if value is not None]
    return replace(row, best=len(found) > 1 and row.mean(name) == max(found))


def _labels(cells: Sequence[Cell], varied: Sequence[str]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """What tells configurations apart: method, and those of stream, PET, backbone and varied keys that differ."""
    settings = [spelt_settings(cell.settings) for cell in cells]
    sources = Counter(title for title, _ in {(cell.settings.method.title, cell.settings.preset) for cell in cells})
    columns: dict[str, list[str]] = {"Method": []}
    for cell in cells:
        title, preset = cell.settings.method.title, cell.settings.preset
        columns["Method"].append(f"{title} ({preset})" if sources[title] > 1 and preset else title)
    keys = {"Stream": "stream", "PET": "pet", "Backbone": "backbone"}
    keys |= {key: key for key in dict.fromkeys(varied) if key not in NAMED}
    for head, key in keys.items():
        values = [_value(each.get(key)) for each in settings]
        name = columns.get(key.partition(".")[0].capitalize(), [""] * len(cells))
        # Where each stream or backbone has one value, its name tells it.
        if len(set(zip(name, values, strict=True))) > len(set(name)):
            columns[head] = values
    return tuple(columns), list(zip(*columns.values(), strict=True))


def _value(value: Any) -> str:
    return words.NONE if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def as_table(results: Results, title: str) -> Table:
    """For the terminal, the page and LaTeX: "71.2 ± 2.0", the best of each stream marked."""
    rows: list[list[Text | str]] = []
    for row in results.rows:
        cells: list[Text | str] = [*row.labels]
        cells.append(f"{row.finished}/{row.runs}" if row.finished < row.runs else str(row.runs))
        for place, one in enumerate(results.measures):
            deviation = row.deviation(one.name) if one.spread else None
            spread = "" if deviation is None else f"{NBSP}±{NBSP}{100 * deviation:.1f}"
            cells.append(Text(f"{one.text(row.mean(one.name))}{spread}", best=row.best and place == 0))
        rows.append(cells)
    heads = [*results.labels, "Runs", *(measure.head for measure in results.measures)]
    return make_table(title, heads, rows, words=results.labels)


def results_csv(results: Results) -> str:
    """One line per configuration, in units of 1: accuracies are fractions, times seconds."""
    heads = [f"{measure.name}_{kind}" for measure in results.measures for kind in ("mean", "std")]
    rows: list[list[Text | str]] = []
    for row in results.rows:
        found = [value for one in results.measures for value in (row.mean(one.name), row.deviation(one.name))]
        rows.append([*row.labels, str(row.runs), str(row.finished), *numbers(words.count, *found), str(int(row.best))])
    return as_csv(make_table("", [*map(str.lower, results.labels), "runs", "finished", *heads, "best"], rows))


def runs_csv(cells: Sequence[Cell], states: Mapping[str, str], runs: Mapping[str, Run], objective: str | None) -> str:
    """One line per run: its settings that vary, its folder, its state, its numbers."""
    keys, measures = list(dict.fromkeys(key for cell in cells for key in cell.varied)), _measures(objective)
    rows: list[list[Text | str]] = []
    for cell in cells:
        series = all_series([runs[cell.name]])[0] if cell.name in runs else None
        found = numbers(words.count, *(measure.of(series) if series else None for measure in measures))
        rows.append([*(str(cell.varied.get(key, "")) for key in keys), cell.name, states[cell.name], *found])
    return as_csv(make_table("", [*keys, "folder", "state", *(measure.name for measure in measures)], rows))
