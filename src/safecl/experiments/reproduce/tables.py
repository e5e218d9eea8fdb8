"""A target's table as CSV, LaTeX, Markdown, and for the terminal: ours, the paper's, the difference."""

import csv
import io
from collections.abc import Sequence

from safecl.experiments.reproduce.results import Line, Shown
from safecl.lines import NBSP
from safecl.report import words
from safecl.report.formats import escaped

MATHS = {"λ": r"$\lambda$", "γ": r"$\gamma$", "↔": r"$\leftrightarrow$", "×": r"$\times$", "Δ": r"$\Delta$"}
HEADS = ("ours", "paper", "difference")


def texts(cell: Shown, decimals: int = 2) -> tuple[str, str, str]:
    """Ours with its spread, the paper's with its ``decimals``, and the difference, as a person reads them."""
    if cell.measure == "learnable":
        return words.count(cell.mean), words.NONE, words.NONE
    spread = "" if cell.deviation is None else f"{NBSP}±{NBSP}{cell.deviation:.1f}"
    ours = words.NONE if cell.mean is None else f"{cell.mean:.1f}{spread}"
    paper = words.NONE if cell.paper is None else f"{cell.paper:.{decimals}f}"
    return ours, paper, words.NONE if cell.difference is None else f"{cell.difference:+.1f}".replace("-", "−")


def compared(lines: Sequence[Line], place: int) -> bool:
    """Whether the paper has a number in a column."""
    return any(line.cells[place].paper is not None for line in lines)


def as_csv(columns: Sequence[str], lines: Sequence[Line]) -> str:
    """A line a cell: mean and standard deviation over seeds, the seeds that are there, the paper's, the difference."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["row", "column", "measure", "ours", "std", "seeds", "paper", "difference"])
    for line in lines:
        for column, cell in zip(columns, line.cells, strict=True):
            numbers = [cell.mean, cell.deviation, len(cell.found), cell.paper, cell.difference]
            plain = ["" if value is None else f"{value:.6g}" for value in numbers]
            writer.writerow([line.label, column, cell.measure, *plain])
    return file.getvalue()


def as_markdown(columns: Sequence[str], lines: Sequence[Line]) -> str:
    """A row a row; a column has three: ours, the paper's and the difference, where the paper has numbers."""
    heads, rows = wide(columns, lines)
    marked = ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in (heads, *rows)]
    return "\n".join([marked[0], "|" + "---|" * len(heads), *marked[1:], ""]).replace(NBSP, " ")


def wide(columns: Sequence[str], lines: Sequence[Line]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of a table with ours, paper and difference side by side."""
    heads, rows = [""], [[line.label] for line in lines]
    papers = [cell.paper for line in lines for cell in line.cells if cell.paper is not None]
    decimals = 1 if all(abs(value - round(value, 1)) < 1e-9 for value in papers) else 2
    for place, column in enumerate(columns):
        both = compared(lines, place)
        heads += [column, "paper", "diff."] if both else [column]
        for row, line in zip(rows, lines, strict=True):
            row += texts(line.cells[place], decimals)[: 3 if both else 1]
    return heads, rows


def as_latex(columns: Sequence[str], lines: Sequence[Line], caption: str) -> str:
    """For ``booktabs``."""
    groups = [3 if compared(lines, place) else 1 for place in range(len(columns))]
    top = [rf"\multicolumn{{{count}}}{{c}}{{{_latex(column)}}}" for count, column in zip(groups, columns, strict=True)]
    below = [" & ".join(("ours", "paper", "diff.")[:count]) for count in groups]
    _, rows = wide(columns, lines)
    body = [" & ".join(map(_latex, row)) + r" \\" for row in rows]
    head = [f"% {caption}", rf"\begin{{tabular}}{{l{'r' * sum(groups)}}}", r"\toprule"]
    heads = [" & ".join(["", *top]) + r" \\", " & ".join(["", *below]) + r" \\", r"\midrule"]
    return "\n".join([*head, *heads, *body, r"\bottomrule", r"\end{tabular}", ""])


def _latex(text: str) -> str:
    text = escaped(text).replace("±", r"$\pm$")
    for sign, command in MATHS.items():
        text = text.replace(sign, command)
    return text
