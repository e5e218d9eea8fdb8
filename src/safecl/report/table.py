"""A table, and how it is written: as CSV, LaTeX or Markdown, and on a terminal."""

import csv
import io
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Drawn
from rich.text import Text

from safecl.lines import NBSP, csv_cell, plain, print_sentence, shown, spelt, text_for

NONE = "–"  # where there is no number
GAP = 2  # columns of a terminal between two of a table
LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": "$-$",
    "±": r"$\pm$",
    NONE: "--",
    NBSP: "~",
    "λ": r"$\lambda$",
    "γ": r"$\gamma$",
    "Δ": r"$\Delta$",
    "×": r"$\times$",
    "↔": r"$\leftrightarrow$",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


@dataclass(frozen=True)
class Cell:
    """A cell's text; ``best`` marks the best method of its row or stream, ``label`` the name of a
    class.

    ``value``: the number that the text rounds, in units of 1; ``spread``: what stands behind its ±.
    """

    text: str
    best: bool = False
    label: bool = False
    value: float | None = None
    spread: float | None = None


@dataclass(frozen=True)
class Column:
    """``group``: the name above it and its neighbours. ``words``: it stands left and may be folded;
    numbers may not.
    """

    name: str
    group: str = ""
    words: bool = False
    style: str = ""

    @property
    def full(self) -> str:
        """Its name in a table with one row of heads."""
        return (
            self.group
            if self.group.startswith(self.name) and self.group
            else f"{self.group} {self.name}".strip()
        )


@dataclass(frozen=True)
class Table:
    """Each row starts with its head."""

    title: str
    columns: list[Column]
    rows: list[list[Cell]]

    @property
    def groups(self) -> list[tuple[str, list[Column]]]:
        """Neighbours with a common name above them."""
        return [
            (name, list(columns))
            for name, columns in groupby(self.columns, key=lambda column: column.group)
        ]

    @property
    def grouped(self) -> bool:
        return any(column.group for column in self.columns)

    def filled(self) -> "Table":
        """Without the columns in which nothing stands."""
        held = [
            i for i in range(len(self.columns)) if any(row[i].text != NONE for row in self.rows)
        ]
        return Table(
            self.title,
            [self.columns[i] for i in held],
            [[row[i] for i in held] for row in self.rows],
        )


def make_table(
    title: str,
    heads: Sequence[str],
    rows: Iterable[Iterable[Cell | str]],
    words: Collection[str] = (),
) -> Table:
    """A table without groups; ``words``: the columns of words besides the first one."""
    columns = [Column(head, words=place == 0 or head in words) for place, head in enumerate(heads)]
    return Table(
        title,
        columns,
        [[Cell(cell) if isinstance(cell, str) else cell for cell in row] for row in rows],
    )


def numbers(text: Callable[[float | None], str], *values: float | None) -> list[Cell]:
    """Cells of numbers, each as ``text`` writes it."""
    return [Cell(text(value), value=value) for value in values]


def as_csv(table: Table) -> str:
    """Numbers in units of 1, accuracies as fractions; where there is a ± it has a column of its
    own.
    """
    names: list[str] = []
    cells: list[list[str]] = []
    for i, column in enumerate(table.columns):
        here = [row[i] for row in table.rows]
        names.append(csv_cell(shown(column.full)))
        cells.append([_written(cell) for cell in here])
        if any(cell.spread is not None for cell in here):
            names.append(f"{column.full} ±")
            cells.append(["" if cell.spread is None else f"{cell.spread:.6g}" for cell in here])
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([names[1:], *zip(*cells, strict=True)])
    return f'"{names[0]}",{file.getvalue()}'  # by these quotes ``outputs`` knows our tables


def _written(cell: Cell) -> str:
    if cell.value is not None:
        return f"{cell.value:.6g}"
    return "" if cell.text == NONE else csv_cell(shown(plain(cell.text)))


def as_latex(table: Table, comment: str = "") -> str:
    """A table for ``booktabs`` as the page shows it, the best in bold."""
    lines = [f"% {comment}"] if comment else []
    lines += [
        rf"\begin{{tabular}}{{{''.join('l' if one.words else 'r' for one in table.columns)}}}",
        r"\toprule",
    ]
    if table.grouped:
        spans = [
            (
                rf"\multicolumn{{{len(columns)}}}{{c}}{{{escaped(name)}}}"
                if name
                else " & " * (len(columns) - 1)
            )
            for name, columns in table.groups
        ]
        lines.append(" & ".join(spans) + r" \\")
    lines += [" & ".join(escaped(column.name) for column in table.columns) + r" \\", r"\midrule"]
    for row in table.rows:
        cells = [
            rf"\textbf{{{escaped(cell.text)}}}" if cell.best else escaped(cell.text) for cell in row
        ]
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def escaped(text: str) -> str:
    """With LaTeX's own characters as text."""
    return re.sub("|".join(map(re.escape, LATEX)), lambda found: LATEX[found[0]], shown(text))


def as_markdown(table: Table) -> str:
    """With one row of heads."""
    rows = [
        [column.full for column in table.columns],
        *([cell.text for cell in row] for row in table.rows),
    ]
    lines = [
        "| " + " | ".join(shown(cell).replace("|", r"\|") for cell in row) + " |" for row in rows
    ]
    return plain("\n".join([lines[0], "|" + "---|" * len(table.columns), *lines[1:], ""]))


def print_table(
    console: Console, table: Table, *, leads: int = 1, drop: Sequence[str] = (), caption: str = ""
) -> None:
    """Print a table as wide as the console at most.

    Columns of ``drop`` are omitted where it is too narrow, the last one first, and named below. If
    that is not enough, the columns are printed in several tables, each with the first ``leads``
    columns.
    """
    single = len([name for name, _ in table.groups if name]) == 1
    heads = [
        spelt(column.name if single else column.full, console.encoding) for column in table.columns
    ]
    cells = [
        [text_for(console, cell.text, "bold" if cell.best else "") for cell in row]
        for row in table.rows
    ]
    longest = [max((cell_len(row[i].plain) for row in cells), default=0) for i in range(len(heads))]
    folded = 16 if console.width < 80 else 12  # columns that words which may be folded get at least
    folds = [column.words for column in table.columns]
    folds[0] = folds[0] and longest[0] > console.width // 3  # a shorter name of a row stays whole
    least = [
        max(min(length, folded) if fold else length, *map(cell_len, head.split(" "))) + GAP
        for fold, head, length in zip(folds, heads, longest, strict=True)
    ]
    shown = list(range(len(heads)))
    width = console.width + GAP  # there is no gap after the last column
    omitted: list[str] = []
    for name in (name for name in reversed(drop) if name in heads):
        if sum(least[i] for i in shown) <= width:
            break
        shown.remove(heads.index(name))
        omitted.insert(0, name)
    if table.title:
        print_sentence(console, table.title, "bold")
    for part in _parts(shown, least, leads, width):
        drawn = Drawn(box=SIMPLE_HEAD, padding=(0, GAP - 1, 0, 0), pad_edge=False, show_edge=False)
        room = sum(max(longest[i], cell_len(heads[i])) + GAP for i in part) <= width
        for i in part:
            column = table.columns[i]
            head = heads[i]
            lines = (
                [head]
                if room
                else textwrap.wrap(head, max(least[i] - GAP, 1), break_long_words=False)
            )
            drawn.add_column(
                Text("\n".join(lines)),
                justify="left" if column.words else "right",
                style=column.style,
                no_wrap=not folds[i],
                overflow="fold",
            )
        for row in cells:
            drawn.add_row(*(row[i] for i in part))
        console.print(drawn)
        console.print()
    notes = [f"Not shown at this width: {', '.join(omitted)}."] if omitted else []
    for sentence in filter(None, (*notes, caption)):
        print_sentence(console, sentence, "dim")


def _parts(shown: Sequence[int], widths: Sequence[int], leads: int, width: int) -> list[list[int]]:
    """The columns of each table, so that each fits; one column at least beside the leading ones."""
    head = list(shown[:leads])
    rest = shown[leads:]
    room = width - sum(widths[i] for i in head)
    parts = [head[:]]
    left = room
    for i in rest:
        if widths[i] > left and len(parts[-1]) > len(head):
            parts.append(head[:])
            left = room
        parts[-1].append(i)
        left -= widths[i]
    return parts
