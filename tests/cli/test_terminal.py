"""Nothing is lost on a narrow terminal: numbers are whole, and what is not shown is named."""

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from safecl.cli.runs import compare
from safecl.report.table import make_table, print_table

Terminal = Callable[..., str]
COMMANDS = """
import sys
from safecl.cli.main import main
for words in (["show", "a"], ["runs", "."], ["compare", "a", "b"], ["data", "list"],
              ["info"], ["info", "--keys"]):
    sys.argv = ["safecl", *words]
    print("$", *words)
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
"""
PHASES = """
import time
from safecl.engine.progress import Live
live = Live()
with live.phase("Session 12  evaluation", 4000, 1500) as phase:
    for done in range(3):
        time.sleep(0.15)
        told = "epoch 12/20  loss 1.234  567 images/s  cls 0.123  f2s 4.567  s2f 8.901  cos 2.345"
        phase.advance(500, told)
live.say("Session 12 of 20: 3 [red]classes[/] [/b]")
"""


@pytest.fixture
def two_runs(tmp_path: Path, write_run: Callable[..., Path]) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", "ranpac", "domain", command="safecl run ranpac stream=folder:photos")


@pytest.mark.parametrize("columns", [40, 100])
def test_commands_fit_any_width_and_break_no_number(
    columns: int, two_runs: None, terminal: Terminal
) -> None:
    text = terminal(columns, COMMANDS)
    assert max(len(line) for line in text.splitlines()) <= columns
    shown = {part.partition("\r\n")[0]: part for part in text.split("$ ")}
    for number in (
        "98.8",
        "93.2",
        "87.7 ± 1.9 %",
        "12.3",
        "1 min 23 s",
        "1 min 40 s",
        "1.2 GB",
        "98.8 MB",
    ):
        assert number in shown["show a"], number
    for number in ("87.7 ± 1.9 %", "93.2"):
        assert number in shown["compare a b"], number
    assert "87.7 ± 1.9 %" in shown["runs ."] and "finished" in shown["runs ."]
    assert "omnibenchmark" in shown["data list"] and "imagenet-r" in shown["data list"]
    assert re.search(r"train\.batch_size +48", shown["info --keys"])
    for part in shown.values():
        assert "…" not in re.sub(r" … |\.…", "", part)  # nothing is cut off
    if columns >= 80:
        assert "409,832" in shown["data list"] and "6 domains" in shown["data list"]


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_progress_line_keeps_phase_bar_and_time_left_and_breaks_no_number(
    columns: int, terminal: Terminal
) -> None:
    text = terminal(columns, PHASES)
    lines = [
        line for line in re.split(r"[\r\n]+", text) if line.startswith("Session 12  evaluation")
    ]
    assert lines and all(len(line.rstrip()) <= columns for line in lines)
    last = lines[-1]
    assert "━━" in last and re.search(r" left \d+:\d\d( |$)", last)
    notes = (
        "epoch 12/20",
        "loss 1.234",
        "567 images/s",
        "cls 0.123",
        "f2s 4.567",
        "s2f 8.901",
        "cos 2.345",
    )
    kept = last.rpartition("left ")[2].split("  ")[1:]
    assert [note.strip() for note in kept if note.strip()] == list(
        notes[: len([n for n in kept if n.strip()])]
    )
    if columns >= 80:
        assert "3000/4000" in last and "epoch 12/20" in last
    # square brackets are only text
    assert "Session 12 of 20: 3 [red]classes[/] [/b]" in " ".join(text.split())


cells = st.text(st.sampled_from("0123456789.%±–"), min_size=1, max_size=14)


@settings(max_examples=25)
@given(
    st.lists(st.lists(cells, min_size=5, max_size=5), min_size=1, max_size=4), st.integers(30, 90)
)
def test_every_cell_is_printed_whole_at_any_width(rows: list[list[str]], width: int) -> None:
    console = Console(file=io.StringIO(), width=width)
    print_table(console, make_table("A title", ["name", *(f"head {i}" for i in range(4))], rows))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    printed = text.split()
    assert all(cell in printed for row in rows for cell in row)
    assert max(len(line) for line in text.splitlines()) <= width


def test_columns_that_are_left_out_are_named_the_least_important_first() -> None:
    heads = ["run", "method", "stream", "final"]
    for width, gone in ((60, ""), (30, "stream"), (20, "method, stream")):
        console = Console(file=io.StringIO(), width=width)
        row = ["a", "fine-tuning", "photographs", "12.3 %"]
        print_table(console, make_table("", heads, [row], words=heads), drop=("method", "stream"))
        text = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
        assert "12.3 %" in text and (
            f"Not shown at this width: {gone}." in text if gone else "Not shown" not in text
        )


HELPS = """
import sys
from safecl.cli.main import main
import typer
from safecl.cli.main import app, data_app
tops, below = (typer.main.get_command(each).commands for each in (app, data_app))
for words in ([], *([name] for name in tops), *(["data", name] for name in below)):
    sys.argv = ["safecl", *words, "--help"]
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
"""


@pytest.mark.parametrize("columns", [40, 64])
def test_help_breaks_and_swallows_no_word(columns: int, terminal: Terminal) -> None:
    few = (
        """([], ["run"], ["demo"], ["runs"], ["compare"], ["data", "check"], ["data", "prepare"])"""
    )
    # On 40 columns the choices of an option may leave no room for words.
    text = terminal(
        columns, HELPS if columns > 40 else re.sub(r"\(\[\].*(?=:)", lambda _: few, HELPS)
    )
    assert max(len(line) for line in text.splitlines()) <= columns
    for word in (
        "tensorboard,",
        "published,",
        "[required]",
        "csv:FILE,",
        "stream.step=2.",
        "SAFECL_DATA,",
    ):
        assert word in text.split(), word
    assert "…" not in text.replace(", …", "")  # nothing is cut off
    assert "Fetch what is open to software" in " ".join(text.replace("│", " ").split())


def test_help_names_no_type_of_python_and_has_examples_to_paste(terminal: Terminal) -> None:
    text = terminal(80, HELPS)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert (
        re.findall(
            r"list\[|[<\[](?:str|int|float|bool|path|text|integer|boolean)\b|\brange\b", text, re.I
        )
        == []
    )
    assert "auto|cpu|cuda|mps" in text and "NUMBER" in text and "{CONFIG}" in text
    lines = [line.strip() for line in text.splitlines()]
    helps = text.count("Usage: safecl")
    # safecl data and safecl leaderboard have commands alone
    assert helps >= 30 and lines.count("Examples:") == helps - 2
    assert "find . -name '*.jpg' | safecl predict - -m pets.safecl" in lines


def test_four_runs_stand_side_by_side_on_80_columns(
    tmp_path: Path, write_run: Callable[..., Path]
) -> None:
    folders = []
    for i, method in enumerate(("safe", "ranpac", "finetune", "slca")):
        folders.append(write_run(tmp_path / method, method))
        name = f"vit_base_patch16_224.augreg_in21k_{i}"
        (folders[-1] / "resolved.yaml").write_text(
            f"backbone: {{name: {name}}}\nmethod: {{ridge: {{size: {i}}}}}\n"
        )
    console = Console(width=80, file=io.StringIO())
    with patch("safecl.cli.runs.make_console", return_value=console):
        compare(folders)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    lines = [line.split() for line in text.splitlines()]
    # one table, with all four
    assert lines.count(["setting", "SAFE", "RanPAC", "Fine-tuning", "SLCA"]) == 1
    assert ["method.ridge.size", "0", "1", "2", "3"] in lines
    assert ["RanPAC", "98.8", "93.2", "87.7"] in lines and text.count("Session ") == 1


SAYS = """
from safecl.cli.terminal import say
say("SAFE: 66.7\\u00a0±\\u00a012.8\\u00a0% of 12\\u00a0test pictures of 5 classes at the end, "
    "76.4 % on average")
say("safecl: a picture of class 日本 is in two places, "
    "one of them a/very/long/path/to/a/picture/in/a/folder.jpg.")
"""


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_sentences_are_broken_between_words_and_numbers_stay_whole(
    columns: int, terminal: Terminal
) -> None:
    lines = terminal(columns, SAYS).splitlines()
    assert all(len(line) <= columns or " " not in line for line in lines)
    text = "\n".join(lines)
    for whole in (
        "66.7 ± 12.8 %",
        "76.4 %",
        "pictures",
        "average",
        "a/very/long/path/to/a/picture/in/a/folder.jpg.",
    ):
        assert whole in text


ASK = """
import io, sys
from safecl.cli import main as cli

class Typed(io.StringIO):
    def isatty(self):
        return True

for words, typed in (("one --label b", "n"), ("one two --remove", ""), ("one/a.png --label c", "")):
    sys.argv, sys.stdin = ["safecl", "correct", "m.safecl", *words.split()], Typed(typed + chr(10))
    try:
        cli.main()
    except SystemExit as stop:
        print("code", stop.code)
"""


def test_all_pictures_of_a_folder_are_corrected_on_a_terminal_only_if_that_is_meant(
    terminal: Callable[..., str],
    new_model: Callable[..., Any],
    write_folder: Callable[..., Path],
    tmp_path: Path,
) -> None:
    for name in ("one", "two"):
        write_folder(tmp_path / name, "ab", 2)
    model = new_model("simplecil")
    model.learn(tmp_path / "one")
    model.save(tmp_path / "m.safecl")
    data = (tmp_path / "m.safecl").read_bytes()
    text = " ".join(terminal(200, ASK).split())
    assert (
        "Give 4 pictures, all of one, the label b? [y/N]: safecl: stopped; what was saved before"
        in text
    )
    assert "Remove 8 pictures, all of one, two? [y/N]:" in text and text.count("code 130") == 2
    # a single file is not asked about; here is none
    assert text.count("[y/N]") == 2 and "code 2" in text
    assert (tmp_path / "m.safecl").read_bytes() == data
