"""The table of a sweep: one row per configuration, mean and standard deviation over seeds."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

from safecl.experiments.sweep.plan import METHOD, Cell, Objective, spelt_settings
from safecl.lines import NBSP
from safecl.report import words
from safecl.report.runs import Run
from safecl.report.series import all_series
from safecl.report.table import Cell as Text
from safecl.report.table import Table, make_table
from safecl.streams.stream import positions

# Keys that have a column of their own, or none: seeds are what a row is a mean over.
NAMED = METHOD | {
    "stream",
    "stream.kind",
    "stream.name",
    "pet",
    "pet.kind",
    "backbone",
    "backbone.name",
    "seed",
}


class Measure(NamedTuple):
    """A number of a series: its head in tables, where it stands, how it is written."""

    head: str
    kind: str
    text: Callable[[float | None], str]


MEASURES = (
    Measure("Final accuracy", "final", words.bare_percent),
    Measure("Average accuracy", "average_seen", words.bare_percent),
    Measure("Forgetting", "forgetting", words.points),
    Measure("Learnable", "run.parameters.learnable", words.count),
    Measure("Stored", "run.last.bytes_kept", words.size),
    Measure("Time", "time", words.duration),
)
SPREAD = (words.bare_percent, words.points)  # of numbers that have a ± over seeds


def as_table(
    title: str, cells: Sequence[Cell], runs: Mapping[str, Run], objective: Objective | None = None
) -> Table:
    """A row for each configuration: "71.2 ± 2.0"; ``runs``: the finished ones by the names of their
    cells.

    The best of each stream by the ``objective``, or by its final accuracy, is marked where there
    are several.
    """
    groups = [
        [cells[i] for i in where]
        for where in positions(cell.configuration for cell in cells).values()
    ]
    kind = "final" if objective == "validation.final" else "average"
    firsts = [group[0] for group in groups]
    measures = (
        *([Measure(objective, f"{kind}_validation", words.bare_percent)] if objective else []),
        *MEASURES,
    )
    labels = _labels(firsts, [key for cell in cells for key in cell.varied])
    rows: list[list[Text]] = []
    for place, group in enumerate(groups):
        done = [runs[cell.name] for cell in group if cell.name in runs]
        count = f"{len(done)}/{len(group)}" if len(done) < len(group) else str(len(group))
        rows.append(
            [
                *(Text(column[place]) for column in labels.values()),
                Text(count),
                *_numbers(done, measures),
            ]
        )
    at = len(labels) + 1  # the number that decides which is the best
    for where in positions(cell.settings.stream.title for cell in firsts).values():
        values = {i: value for i in where if (value := rows[i][at].value) is not None}
        for i in values if len(values) > 1 else ():
            rows[i][at] = replace(rows[i][at], best=values[i] == max(values.values()))
    return make_table(
        title, [*labels, "Runs", *(measure.head for measure in measures)], rows, words=labels
    )


def _numbers(runs: Sequence[Run], measures: Sequence[Measure]) -> list[Text]:
    """Of the mean over runs that differ in their seed alone."""
    if not runs:
        return [Text(words.NONE)] * len(measures)
    one = replace(all_series(runs)[0], runs=tuple(runs))
    found = []  # the main output is first
    for measure in measures:
        value = attrgetter(measure.kind)(one)
        spread = one.deviation(measure.kind) if measure.text in SPREAD else None
        error = "" if spread is None else f"{NBSP}±{NBSP}{100 * spread:.1f}"
        found.append(Text(f"{measure.text(value)}{error}", value=value, spread=spread))
    return found


def _labels(cells: Sequence[Cell], varied: Sequence[str]) -> dict[str, list[str]]:
    """What tells configurations apart: method, and of stream, PET, backbone and varied keys those
    that differ.
    """
    settings = [spelt_settings(cell.settings) for cell in cells]
    sources = Counter(
        title for title, _ in {(cell.settings.method.title, cell.settings.preset) for cell in cells}
    )
    columns: dict[str, list[str]] = {"Method": []}
    for cell in cells:
        title = cell.settings.method.title
        preset = cell.settings.preset
        columns["Method"].append(f"{title} ({preset})" if sources[title] > 1 and preset else title)
    keys = {"Stream": "stream", "PET": "pet", "Backbone": "backbone"}
    keys |= {key: key for key in dict.fromkeys(varied) if key not in NAMED}
    for head, key in keys.items():
        values = [_value(each.get(key)) for each in settings]
        name = columns.get(key.partition(".")[0].capitalize(), [""] * len(cells))
        # Where each stream or backbone has one value, its name tells it.
        if len(set(zip(name, values, strict=True))) > len(set(name)):
            columns[head] = values
    return columns


def _value(value: Any) -> str:
    return (
        words.NONE
        if value is None
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )
