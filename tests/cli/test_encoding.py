"""A terminal or a log that has only ASCII gets replacements, and never a traceback."""

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from safecl.cli.terminal import prepare_streams
from safecl.report.table import make_table, print_table

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
PROGRAM = """
import sys
from safecl.cli.main import main
tiny = ["backbone=test_vit", "backbone.weights=random", "backbone.image_size=16"]
for words in (["run", "simplecil", "stream=folder:data", *tiny, "--folder", "run"],
              ["show", "run"], ["show", "made"],
              ["compare", "run", "made"], ["runs", "."], ["data", "list"],
              ["data", "check", "folder:data"], ["info"], ["--help"], ["run", "--help"]):
    sys.argv = ["safecl", *words]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (words, end.code)
"""


def test_every_command_speaks_ascii_and_reads_names_as_utf8(
    tmp_path: Path, class_folder: Callable[..., Path], write_run: Callable[..., Path]
) -> None:
    class_folder({"Zürich": 3, "日本": 3, "🐈 cat": 3})
    write_run(tmp_path / "made")
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={**os.environ, **ASCII},
        capture_output=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr.decode()
    assert b"87.7 +- 1.9 %" in ran.stdout and ran.stdout.isascii() and ran.stderr.isascii()
    metrics = (tmp_path / "run" / "facts.json").read_text(encoding="utf-8")
    assert all(label in metrics for label in ("Zürich", "日本", "🐈 cat"))


def test_a_word_that_is_no_text_is_one_sentence(tmp_path: Path) -> None:
    command = [
        os.fsencode(sys.executable),
        b"-m",
        b"safecl",
        b"run",
        b"safe",
        b"stream=folder:caf\xe9",
    ]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120)
    assert (
        ran.returncode == 2
        and ran.stderr.count(b"\n") == 1
        and b"is not text in this locale" in ran.stderr
    )


def test_replacements_are_made_before_columns_are_laid_out() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    rows = [["a", "78.2 ± 1.8 %", "x"], ["b", "–", "x"]]
    print_table(
        Console(file=file, width=60),
        make_table("A – title", ["run…", "final", "state"], rows, words=["state"]),
    )
    file.flush()
    lines = file.buffer.getvalue().decode("ascii").splitlines()  # type: ignore[attr-defined]
    first, second = (line for line in lines if line.startswith(("a", "b")))
    assert (
        first.index("x") == second.index("x") and "78.2 +- 1.8 %" in first and "run..." in lines[1]
    )


def test_what_is_like_it_stands_for_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="ascii") for _ in range(2)]
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    prepare_streams()
    for stream in streams:
        stream.write("78.2\u00a0±\u00a01.8\u202f% – “x” → 日本…")
        stream.flush()
        assert stream.buffer.getvalue() == b'78.2 +- 1.8 % - "x" -> ??...'  # type: ignore[attr-defined]
