"""Text that is shown cannot steer a terminal, deceive a reader or become a formula; names are the
same again.
"""

import csv
import io
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from safecl.cli.terminal import print_facts, print_json, print_line, say
from safecl.engine.progress import Plain
from safecl.lines import HIDDEN, csv_cell, csv_text, shown
from safecl.report.table import as_csv, as_latex, as_markdown, make_table, print_table
from safecl.report.templates import Tile, render

STEERING = [
    "\x1b[31mred",
    "\x9b2J",
    "a\rb",
    "bell\x07",
    "\x7f",
    "\u202eevil",
    "\u2066x\u2069",
    "zero\u200bwidth",
    "\ufeffcat",
    "c\u200dat",
    "cat\u200c",
    "cat\ufe0f",
    "soft\xadhyphen",
    "\u2028line",
    "tag\U000e0041",
    "\u3164",
    "caf\udce9",
    "\u2800",
]
READABLE = [
    "Zürich",
    "日本",
    "می\u200cخواهم",
    "क्\u200dष",
    "👩\u200d👧",
    "❤️\u200d🔥",
    "1️⃣",
    "שלום",
    "[red]x[/red]",
    "a b",
]


@pytest.mark.parametrize("text", STEERING)
def test_what_steers_or_hides_is_an_escape_wherever_it_is_shown(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert HIDDEN.search(text) and not HIDDEN.search(shown(text)) and shown(text).isprintable()
    table = make_table(text, ["name", text], [[text, text]], words=[text])
    file = io.StringIO()
    console = Console(file=file, width=100, force_terminal=False)
    print_table(console, table, caption=text)
    print_facts(console, [(text, text)])
    say(text)
    say(text, err=True)
    print_line(text)
    Plain().say(text)
    said = capsys.readouterr()
    written = [
        file.getvalue(),
        said.out,
        said.err,
        as_csv(table),
        as_markdown(table),
        as_latex(table),
    ]
    page = render(
        "model.html",
        title=text,
        subject=text,
        facts=[Tile(text, text, text)],
        measured=None,
        measured_bins=None,
        calibration=None,
        classes=table,
        advice=[text],
        galleries=[(text, text, [])],
        history=table,
        choice=None,
    )
    assert all(not HIDDEN.search(part.replace("\n", "")) for part in (*written, page))
    assert shown(text) in said.out and shown(text) in page


@pytest.mark.parametrize("text", READABLE)
def test_words_of_any_alphabet_and_markup_are_shown_as_they_are(text: str) -> None:
    file = io.StringIO()
    print_table(Console(file=file, width=80), make_table("", [text], [[text]]))
    assert shown(text) == text and file.getvalue().count(text) == 2


@given(st.text())
def test_json_is_printable_and_carries_the_exact_text(text: str) -> None:
    before = sys.stdout
    sys.stdout = io.StringIO()
    try:
        print_json({"name": text}, indent=1)
        printed = sys.stdout.getvalue()
    finally:
        sys.stdout = before
    assert json.loads(printed) == {"name": text} and not HIDDEN.search(printed.replace("\n", ""))


@given(st.text() | st.from_regex(r"'*[=+\-@\t\r][ -~]*", fullmatch=True))
def test_no_cell_of_a_csv_file_is_a_formula_and_its_text_is_the_same_again(text: str) -> None:
    cell = csv_cell(text)
    assert csv_text(cell) == text
    if cell[:1] in ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠"):
        assert set(cell) <= set("+-.e0123456789")  # a number


def test_names_in_written_tables_are_no_formulas_and_numbers_stay_numbers() -> None:
    table = make_table(
        "", ["=head", "value"], [["=cmd|' /C calc'!A0", "-1.5"], ["@SUM(1)", "+2"], ["-x", "–"]]
    )
    rows = list(csv.reader(io.StringIO(as_csv(table))))
    assert rows == [
        ["'=head", "value"],
        ["'=cmd|' /C calc'!A0", "-1.5"],
        ["'@SUM(1)", "+2"],
        ["'-x", ""],
    ]


def test_values_in_attributes_of_a_page_stay_inside_them() -> None:
    name = "\"><script>alert(1)</script>'\u202e"
    table = make_table("", ["class"], [[name]])
    page = render(
        "model.html",
        title=name,
        subject="",
        facts=[],
        measured=None,
        measured_bins=None,
        calibration=None,
        classes=table,
        advice=[name],
        galleries=[],
        history=table,
        choice=None,
    )
    assert "<script>alert" not in page and "\u202e" not in page and "\\u202e" in page
