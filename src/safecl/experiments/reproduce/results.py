"""The numbers of a target from its finished runs: ours beside the paper's, whether its claims hold,
and its table.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import mean, stdev
from typing import Any

from safecl.experiments.reproduce.plan import Entry, Job
from safecl.experiments.reproduce.targets import Measure, Target
from safecl.experiments.sweep import plan
from safecl.lines import NBSP, counted
from safecl.report import words
from safecl.report.runs import Run
from safecl.report.series import Series, all_series
from safecl.report.table import Cell, Column, Table

# The final accuracy of a finished run that is evaluated again with other settings of its answer.
Ask = Callable[[plan.Cell, Mapping[str, Any]], float | None]


@dataclass(frozen=True)
class Shown:
    """A cell of a table: our number for each seed, and the paper's. Accuracies are percentages."""

    ours: tuple[float | None, ...] = ()
    paper: float | None = None
    measure: Measure = "final"

    @property
    def found(self) -> list[float]:
        return [value for value in self.ours if value is not None]

    @property
    def mean(self) -> float | None:
        return mean(self.found) if self.found else None

    @property
    def deviation(self) -> float | None:
        """The sample standard deviation over seeds; None of fewer than two."""
        return stdev(self.found) if len(self.found) > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.mean is None or self.paper is None else self.mean - self.paper


@dataclass(frozen=True)
class Line:
    """A row of a table."""

    label: str
    cells: list[Shown]


@dataclass(frozen=True)
class Outcome:
    """What the paper ``says``, here: the smallest margin over those it names. None where numbers
    are missing.
    """

    says: str
    rival: str = ""
    margin: Shown | None = None

    @property
    def holds(self) -> bool | None:
        return None if self.margin is None or self.margin.mean is None else self.margin.mean > 0

    def __str__(self) -> str:
        if self.margin is None or self.margin.mean is None:
            return f"{self.says}: not known, numbers are missing"
        mean = self.margin.mean
        deviation = self.margin.deviation
        count = len(self.margin.found)
        verdict = "holds" if self.holds else "does not hold" if mean else "is level"
        within = (
            ", within the spread" if deviation is not None and 0 < abs(mean) <= deviation else ""
        )
        spread = (
            f" ± {deviation:.2f} over {count} seeds"
            if deviation is not None
            else f" ({counted(count, 'seed')})"
        )
        ours, papers = (
            f"{value or 0.0:+.2f}".replace("-", "−") for value in (mean, self.margin.paper)
        )
        against = f" against {self.rival}" if self.rival else ""
        paper = "" if self.margin.paper is None else f"; in the paper by {papers}"
        return f"{self.says}: {verdict}{within}, by {ours} points{spread}{against}{paper}"


def fill(job: Job, runs: Mapping[str, Run], ask: Ask) -> list[Line]:
    """The rows of a target; ``runs``: the finished ones by the names of their cells."""
    lines = []
    for row in job.rows:
        mine = {
            entry.column.label: _shown(entry, runs, ask)
            for entry in job.entries
            if entry.row is row
        }
        cells = [mine.get(column.label, Shown()) for column in job.columns if not column.mean]
        # the paper's own mean, where all of its columns are there
        if len(cells) < len(job.columns):
            whole = len(job.columns) == len(job.target.columns) and row.paper
            cells.append(_mean(cells, row.paper[-1] if whole else None))
        lines.append(Line(row.label, cells))
    return lines


def _mean(cells: Sequence[Shown], printed: float | None) -> Shown:
    """Over the columns that are there: of ours seed by seed, of the paper's where each has a
    number.
    """
    ours = [_whole_mean(values) for values in zip_longest(*(cell.ours for cell in cells))]
    return Shown(
        tuple(ours), _whole_mean([cell.paper for cell in cells]) if printed is None else printed
    )


def _whole_mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean(known) if known and len(known) == len(values) else None


def _shown(entry: Entry, runs: Mapping[str, Run], ask: Ask) -> Shown:
    def value(cell: plan.Cell) -> float | None:
        if cell.name not in runs:
            return None
        one = series(runs[cell.name], entry.row.output)
        if one is None:
            return None
        if entry.column.measure == "learnable":
            return one.run.parameters.learnable
        found = one.final if entry.column.measure == "final" else one.average_seen
        found = ask(cell, entry.column.answer) if entry.column.answer else found
        return None if found is None else 100 * found

    return Shown(tuple(map(value, entry.runs)), entry.paper, entry.column.measure)


def series(run: Run, output: str | None) -> Series | None:
    """An output of a run (of None: the method's own answer); None where the run has no such
    output.
    """
    return next(
        (one for one in all_series([run]) if one.output == output or (one.main and output is None)),
        None,
    )


def judge(target: Target, lines: Sequence[Line]) -> list[Outcome]:
    """The paper's claims on a table, each by its smallest margin in the last column of final
    accuracies (the mean).
    """
    cells = {line.label: cell for line in lines for cell in line.cells if cell.measure == "final"}
    found = []
    for claim in target.claims:
        rivals = [rival for rival in claim.over if {claim.row, rival} <= cells.keys()]
        margins = {rival: _margin(cells[claim.row], cells[rival]) for rival in rivals}
        known = {rival: margin.mean for rival, margin in margins.items() if margin.mean is not None}
        rival = min(known, key=lambda name: known[name], default="")
        found.append(Outcome(claim.says, rival, margins.get(rival)))
    return found


def _margin(one: Shown, other: Shown) -> Shown:
    """The difference of two cells, seed by seed."""
    pairs = zip(one.ours, other.ours, strict=False)
    paper = None if one.paper is None or other.paper is None else one.paper - other.paper
    return Shown(tuple(None if a is None or b is None else a - b for a, b in pairs), paper)


def target_table(columns: Sequence[str], lines: Sequence[Line]) -> Table:
    """Each column of the paper has three where the paper has numbers: ours, the paper's and the
    difference.
    """
    papers = [cell.paper for line in lines for cell in line.cells if cell.paper is not None]
    decimals = 1 if all(abs(value - round(value, 1)) < 1e-9 for value in papers) else 2
    heads = [Column("", words=True)]
    rows = [[Cell(line.label)] for line in lines]
    for place, group in enumerate(columns):
        cells = [line.cells[place] for line in lines]
        compared = any(cell.paper is not None for cell in cells)
        heads += [Column("ours", group)]
        heads += (
            [Column("paper", group, style="dim"), Column("diff.", group, style="dim")]
            if compared
            else []
        )
        for row, cell in zip(rows, cells, strict=True):
            ours, paper, difference = texts(cell, decimals)
            row.append(Cell(ours, value=cell.mean, spread=cell.deviation))
            row += (
                [Cell(paper, value=cell.paper), Cell(difference, value=cell.difference)]
                if compared
                else []
            )
    return Table("", heads, rows)


def texts(cell: Shown, decimals: int = 2) -> tuple[str, str, str]:
    """Ours with its spread, the paper's with its ``decimals``, and the difference, as a person
    reads them.
    """
    if cell.measure == "learnable":
        return words.count(cell.mean), words.NONE, words.NONE
    spread = "" if cell.deviation is None else f"{NBSP}±{NBSP}{cell.deviation:.1f}"
    ours = words.NONE if cell.mean is None else f"{cell.mean:.1f}{spread}"
    paper = words.NONE if cell.paper is None else f"{cell.paper:.{decimals}f}"
    return (
        ours,
        paper,
        words.NONE if cell.difference is None else f"{cell.difference:+.1f}".replace("-", "−"),
    )
