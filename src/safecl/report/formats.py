"""Tables as CSV and LaTeX."""

import csv
import io
import re

from safecl.lines import NBSP
from safecl.report import words
from safecl.report.tables import Table


def as_csv(table: Table) -> str:
    """Numbers in units of 1, accuracies as fractions; where there is a ± it has a column of its own."""
    heads, columns = _heads(table), list(zip(*table.rows, strict=True)) or [() for _ in _heads(table)]
    names: list[str] = []
    cells: list[list[str]] = []
    for head, column in zip(heads, columns, strict=True):
        names.append(head)
        cells.append([cell.text.replace(NBSP, " ") if cell.value is None else f"{cell.value:.6g}" for cell in column])
        cells[-1] = ["" if text == words.NONE else text for text in cells[-1]]
        if any(cell.spread is not None for cell in column):
            names.append(f"{head} ±")
            cells.append(["" if cell.spread is None else f"{cell.spread:.6g}" for cell in column])
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(zip(*cells, strict=True))
    return file.getvalue()


def as_latex(table: Table) -> str:
    """A table for ``booktabs`` as the page shows it, the best in bold."""
    lines = [f"\\begin{{tabular}}{{l{('l' if table.wordy else 'r') * (len(_heads(table)) - 1)}}}", "\\toprule"]
    if table.groups:
        spans = [f"\\multicolumn{{{len(group.columns)}}}{{c}}{{{escaped(group.name)}}}" for group in table.groups]
        lines.append(" & ".join([*[""] * len(table.leads), *spans]) + r" \\")
        named = [*table.leads, *(column for group in table.groups for column in group.columns)]
    else:
        named = table.leads
    lines += [" & ".join(map(escaped, named)) + r" \\", "\\midrule"]
    for row in table.rows:
        cells = [f"\\textbf{{{escaped(cell.text)}}}" if cell.best else escaped(cell.text) for cell in row]
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


def escaped(text: str) -> str:
    """With LaTeX's own characters as text."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {"−": "$-$", "±": r"$\pm$", words.NONE: "--", NBSP: "~"}
    special |= {sign: f"\\{sign}" for sign in "&%$#_{}"}
    return re.sub("|".join(map(re.escape, special)), lambda found: special[found[0]], text)


def _heads(table: Table) -> list[str]:
    return [*table.leads, *(f"{group.name} {column}" for group in table.groups for column in group.columns)]
