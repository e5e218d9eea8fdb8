"""A target's table: ours, the paper's, the difference."""

from collections.abc import Sequence

from safecl.experiments.reproduce.results import Line, Shown
from safecl.lines import NBSP
from safecl.report import words
from safecl.report.table import Cell, Column, Table, as_csv, make_table


def target_table(columns: Sequence[str], lines: Sequence[Line]) -> Table:
    """Each column of the paper has three where the paper has numbers: ours, the paper's and the difference."""
    papers = [cell.paper for line in lines for cell in line.cells if cell.paper is not None]
    decimals = 1 if all(abs(value - round(value, 1)) < 1e-9 for value in papers) else 2
    heads, rows = [Column("", words=True)], [[Cell(line.label)] for line in lines]
    for place, group in enumerate(columns):
        cells = [line.cells[place] for line in lines]
        compared = any(cell.paper is not None for cell in cells)
        heads += [Column("ours", group)]
        heads += [Column("paper", group, style="dim"), Column("diff.", group, style="dim")] if compared else []
        for row, cell in zip(rows, cells, strict=True):
            row += map(Cell, texts(cell, decimals)[: 3 if compared else 1])
    return Table("", heads, rows)


def texts(cell: Shown, decimals: int = 2) -> tuple[str, str, str]:
    """Ours with its spread, the paper's with its ``decimals``, and the difference, as a person reads them."""
    if cell.measure == "learnable":
        return words.count(cell.mean), words.NONE, words.NONE
    spread = "" if cell.deviation is None else f"{NBSP}±{NBSP}{cell.deviation:.1f}"
    ours = words.NONE if cell.mean is None else f"{cell.mean:.1f}{spread}"
    paper = words.NONE if cell.paper is None else f"{cell.paper:.{decimals}f}"
    return ours, paper, words.NONE if cell.difference is None else f"{cell.difference:+.1f}".replace("-", "−")


def cells_csv(columns: Sequence[str], lines: Sequence[Line]) -> str:
    """One line per cell: mean and standard deviation over seeds, how many there are, the paper's, the difference."""
    rows: list[list[Cell | str]] = []
    for line in lines:
        for column, cell in zip(columns, line.cells, strict=True):
            numbers = (cell.mean, cell.deviation, len(cell.found), cell.paper, cell.difference)
            rows.append([line.label, column, cell.measure, *(Cell(words.NONE, value=value) for value in numbers)])
    return as_csv(make_table("", ["row", "column", "measure", "ours", "std", "seeds", "paper", "difference"], rows))
