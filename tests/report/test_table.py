"""One table, four ways to write it: the same cells in each."""

import csv
import io

from rich.console import Console

from safecl.report.table import Cell, Column, Table, as_csv, as_latex, as_markdown, print_table

COLUMNS = [
    Column("", words=True),
    Column("ours", "Final"),
    Column("paper", "Final", style="dim"),
    Column("note", words=True),
]
ROWS = [
    [
        Cell("SAFE"),
        Cell("71.2\u00a0±\u00a02.0", best=True, value=0.712, spread=0.02),
        Cell("70.9", value=0.709),
        Cell("a | b_c"),
    ],
    [Cell("λ = 0"), Cell("–"), Cell("70.1", value=0.701), Cell("")],
]
TABLE = Table("A title", COLUMNS, ROWS)


def test_csv_has_numbers_in_units_of_one_and_a_column_for_each_spread() -> None:
    rows = list(csv.reader(io.StringIO(as_csv(TABLE))))
    assert rows[0] == ["", "Final ours", "Final ours ±", "Final paper", "note"]
    assert rows[1:] == [
        ["SAFE", "0.712", "0.02", "0.709", "a | b_c"],
        ["λ = 0", "", "", "0.701", ""],
    ]


def test_latex_spans_groups_and_escapes() -> None:
    lines = as_latex(TABLE, "a comment").splitlines()
    assert lines[:2] == ["% a comment", r"\begin{tabular}{lrrl}"]
    assert r" & \multicolumn{2}{c}{Final} &  \\" in lines and r" & ours & paper & note \\" in lines
    assert r"SAFE & \textbf{71.2~$\pm$~2.0} & 70.9 & a | b\_c \\" in lines
    assert r"$\lambda$ = 0 & -- & 70.1 &  \\" in lines


def test_markdown_has_one_row_of_heads() -> None:
    lines = as_markdown(TABLE).splitlines()
    assert lines[0] == "|  | Final ours | Final paper | note |" and lines[1] == "|---|---|---|---|"
    assert lines[2] == r"| SAFE | 71.2 ± 2.0 | 70.9 | a \| b_c |"


def test_a_terminal_shows_every_cell_and_the_names_of_a_single_group_once() -> None:
    console = Console(file=io.StringIO(), width=80)
    print_table(console, TABLE, caption="A caption.")
    text = console.file.getvalue()  # type: ignore[attr-defined]
    lines = [line.split() for line in text.splitlines() if line.strip()]
    assert (
        lines[0] == ["A", "title"]
        and lines[1] == ["ours", "paper", "note"]
        and lines[-1] == ["A", "caption."]
    )
    assert ["SAFE", "71.2", "±", "2.0", "70.9", "a", "|", "b_c"] in lines and [
        "λ",
        "=",
        "0",
        "–",
        "70.1",
    ] in lines
