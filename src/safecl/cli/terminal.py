"""Tables on a terminal of any width."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from safecl.lines import plain, spelt, wrapped

WIDTH = 120  # columns where there is no terminal and COLUMNS does not say
GAP = 2  # columns between two of a table
FOLDED = 16  # columns that a text which may be folded gets at least


def make_console() -> Console:
    """The terminal; where there is none, lines of COLUMNS, or of ``WIDTH``."""
    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=WIDTH)


def say(text: str, err: bool = False) -> None:
    """Print a sentence: on a terminal in lines of whole words, elsewhere in one line."""
    stream = sys.stderr if err else sys.stdout
    text = spelt(text, stream.encoding)
    lines = wrapped(text, shutil.get_terminal_size().columns) if stream.isatty() else [plain(text)]
    print(*lines, sep="\n", file=stream, flush=True)


def text_for(console: Console, text: str, style: Any = "") -> Text:
    """Text in the console's encoding, with usual spaces; it is broken inside a word only where it must be."""
    return Text(plain(spelt(text, console.encoding)), style=style, overflow="fold")


def print_sentence(console: Console, text: str, style: str = "") -> None:
    """Print a sentence in lines of whole words."""
    console.print(Text("\n".join(wrapped(spelt(text, console.encoding), console.width)), style=style))


@dataclass(frozen=True)
class Column:
    """``folds``: its cells may go over several lines; those of other columns are never broken."""

    head: str
    right: bool = False
    folds: bool = False
    style: str = ""

    def least(self, cells: Sequence[Text]) -> int:
        """The width below which something would be broken that must not be."""
        longest, words = max(map(_length, cells), default=0), self.head.split(" ")
        return max(max(map(cell_len, words)), min(longest, FOLDED) if self.folds else longest)

    def most(self, cells: Sequence[Text]) -> int:
        """The width beyond which it would be empty."""
        return max([cell_len(self.head), *map(_length, cells)])


def _length(cell: Text) -> int:
    return cell_len(cell.plain)


def _cell(console: Console, text: str | Text) -> Text:
    return text_for(console, text.plain, text.style) if isinstance(text, Text) else text_for(console, text)


Row = Sequence[str | Text]


def print_table(
    console: Console,
    title: str,
    columns: Sequence[Column],
    rows: Sequence[Row],
    *,
    leads: int = 1,
    drop: Sequence[str] = (),
    caption: str = "",
    meanings: Mapping[str, str] | None = None,
) -> None:
    """Print a table as wide as the console at most.

    Columns of ``drop`` are left out where it is too narrow, the last one first, and named below. If that is not
    enough, the columns are printed in several tables, each with the first ``leads`` columns. ``meanings``: of columns,
    by their heads; those of columns that are left out are left out, too.
    """
    columns = [replace(column, head=spelt(column.head, console.encoding)) for column in columns]
    cells = [[_cell(console, text) for text in row] for row in rows]
    inside = [[row[i] for row in cells] for i in range(len(columns))]
    widths = [column.least(some) + GAP for column, some in zip(columns, inside, strict=True)]
    shown = list(range(len(columns)))
    heads = [column.head for column in columns]
    gone: list[str] = []
    for name in reversed(drop):
        if sum(widths[i] for i in shown) <= console.width + GAP:  # none after the last
            break
        shown.remove(heads.index(name))
        gone.insert(0, name)
    if title:
        print_sentence(console, title, "bold")
    for part in _parts(shown, widths, leads, console.width + GAP):
        table = Table(box=SIMPLE_HEAD, padding=(0, GAP - 1, 0, 0), pad_edge=False, show_edge=False)
        room = console.width + GAP - sum(widths[i] for i in part)
        for i in part:
            column, more = columns[i], max(min(columns[i].most(inside[i]) + GAP - widths[i], room), 0)
            room -= more
            justify: Any = "right" if column.right else "left"
            table.add_column(Text(column.head), justify=justify, style=column.style, width=widths[i] - GAP + more,
                             overflow="fold")  # fmt: skip
        for row in cells:
            table.add_row(*(row[i] for i in part))
        console.print(table)
        console.print()
    if gone:
        print_sentence(console, f"Not shown at this width: {', '.join(gone)}.", "dim")
    told = [f"{head}: {meaning}" for head, meaning in (meanings or {}).items() if head not in gone]
    if told:
        print_sentence(console, "; ".join(told), "dim")
    if caption:
        print_sentence(console, caption, "dim")


def _parts(shown: Sequence[int], widths: Sequence[int], leads: int, width: int) -> list[list[int]]:
    """The columns of each table, so that each fits; one column at least beside the leading ones."""
    head, rest = list(shown[:leads]), shown[leads:]
    room = width - sum(widths[i] for i in head)
    parts, left = [head[:]], room
    for i in rest:
        if widths[i] > left and len(parts[-1]) > len(head):
            parts.append(head[:])
            left = room
        parts[-1].append(i)
        left -= widths[i]
    return parts
