"""Runs beside each other on the terminal."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
from rich.console import Console

from safecl.cli.runs import compare, runs, show
from tests.conftest import raises

WriteRun = Callable[..., Path]
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path


def shown(function: Callable[..., None], *words: object, width: int = 160) -> str:
    console = Console(file=io.StringIO(), width=width)
    with patch("safecl.cli.runs.make_console", return_value=console):
        function(*words)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def row(text: str, key: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.startswith(key))


def test_settings_of_any_run_are_compared_as_one_types_them(
    tmp_path: Path, write_run: WriteRun
) -> None:
    a = write_run(tmp_path / "a")
    b = write_run(tmp_path / "b", "ranpac")
    (a / "resolved.yaml").write_text(
        "preset: ''\nseed: 0\ngamma: 0.5\nstream: {step: null, cache: true}\n"
    )
    (b / "resolved.yaml").write_text("preset: x\nseed: 0\nstream: {step: 2, cache: false}\n")
    text = shown(compare, [a, b])
    assert row(text, "stream.step") == ["stream.step", "null", "2"]
    assert row(text, "stream.cache") == ["stream.cache", "true", "false"]
    assert row(text, "gamma") == ["gamma", "0.5", "–"] and row(text, "preset") == [
        "preset",
        "–",
        "x",
    ]
    assert "\nseed" not in text and text.index("stream.cache") < text.index("gamma")


def test_each_stream_has_a_table_with_a_row_for_each_output(
    tmp_path: Path, write_run: WriteRun
) -> None:
    streams = [{"name": name, "protocol": "class", "sessions": []} for name in ("glyphs", "photos")]
    folders = [write_run(tmp_path / s["name"], stream=s) for s in streams]  # type: ignore[arg-type]
    text = shown(compare, folders)
    table = text[text.index("in percent (glyphs)") :].partition("\n\n")[0]
    assert (
        table.count("SAFE (stream glyphs)") == 3
        and "photos" not in table
        and "in percent (photos)" in text
    )


def test_a_folder_of_runs_is_sent_to_safecl_runs(tmp_path: Path, write_run: WriteRun) -> None:
    write_run(tmp_path / "a")
    with raises(
        "report.run.none",
        folder=tmp_path,
        why=re.compile(r"itself but runs inside it, such as .*a; safecl runs .* lists"),
    ):
        show(tmp_path)


@pytest.mark.parametrize("below", ["", "all/"])
@pytest.mark.usefixtures("undrawn")
def test_a_folder_of_runs_stands_for_its_runs(
    below: str, tmp_path: Path, write_run: WriteRun, say: Command
) -> None:
    """As a sweep leaves it, with its tables and its page beside the runs."""
    folders = [
        write_run(tmp_path / "x" / below / name, method)
        for name, method in (("a", "safe"), ("b", "ranpac"))
    ]
    for name in ("mine.csv", "mine.html"):
        (tmp_path / "x" / name).touch()
    assert say("compare", "x")[:2] == say("compare", *map(str, folders))[:2]
    assert say("report", "x", "--page", "all.html") == (0, "all.html\n", "")
    page = (tmp_path / "all.html").read_text()
    assert "Runs compared" in page and "SAFE" in page and "RanPAC" in page


@pytest.mark.parametrize("word", ["report", "compare"])
def test_a_file_among_the_folders_is_answered_with_what_to_give(
    word: str, tmp_path: Path, write_run: WriteRun, say: Command
) -> None:
    write_run(tmp_path / "x" / "a")
    (tmp_path / "x" / "mine.csv").touch()
    code, out, told = say(word, "x/a", "x/mine.csv")
    assert (code, out) == (2, "")
    assert (
        told == "safecl: x/mine.csv is a file and no run; give the folder of the runs alone: x.\n"
    )
    (tmp_path / "empty").mkdir()
    code, _, told = say(word, "empty")
    assert code == 2 and "empty holds no run: empty/facts.json is missing." in told


def test_columns_that_are_not_shown_are_named(tmp_path: Path, write_run: WriteRun) -> None:
    write_run(tmp_path / "a")
    wide, narrow = (" ".join(shown(runs, tmp_path, width=width).split()) for width in (160, 40))
    assert "average: the mean over sessions" in wide
    assert "Not shown at this width" in narrow and "Not shown" not in wide


def test_a_run_killed_before_its_summary_shows_what_it_trains_and_keeps(
    tmp_path: Path, write_run: WriteRun
) -> None:
    folder = write_run(tmp_path / "a")
    (folder / "summary.json").unlink()
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lines[-1]["parameters"] = {"learnable": 12_345, "stored": 67_890}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "parameters" not in json.loads((folder / "facts.json").read_text())
    text = shown(show, folder)
    assert row(text, "state") == ["state", "unfinished"]
    assert row(text, "learnable") == ["learnable", "12,345", "numbers"]
    assert row(text, "kept") == ["kept", "67,890", "numbers"]
