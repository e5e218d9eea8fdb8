"""Whoever reads the output may close it, or have closed it before: a command ends without a
traceback all the same.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the shell closes the streams")
COMMAND = f"exec {sys.executable} -m safecl"
LIGHT = ["--version", "predict --help", "methods", "inspect {model} --json"]


@pytest.fixture(scope="module", params=LIGHT)
def words(request: pytest.FixtureRequest, exported: tuple[Path, Path]) -> str:
    return str(request.param.format(model=exported[0]))


def test_nobody_is_told_of_a_closed_pipe_and_the_code_is_that_of_sigpipe(words: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ran = subprocess.run(
        ["sh", "-c", f"{COMMAND} {words}"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    os.close(writing)
    assert (ran.returncode, ran.stderr) == (141, "")


def test_what_nobody_reads_from_the_start_is_no_error(words: str) -> None:
    for closed in (">&-", "2>&-", "<&- >&- 2>&-"):
        ran = subprocess.run(
            ["sh", "-c", f"{COMMAND} {words} {closed}"], capture_output=True, text=True, timeout=60
        )
        assert (ran.returncode, ran.stderr) == (0, ""), closed


def test_an_error_keeps_its_code_where_nobody_can_hear_its_sentence() -> None:
    for closed in ("2>&-", "2>/dev/full", ">&- 2>&-"):
        for buffered in ("", "1"):
            ran = subprocess.run(
                ["sh", "-c", f"{COMMAND} inspect none.safecl {closed}"],
                capture_output=True,
                timeout=60,
                env={**os.environ, "PYTHONUNBUFFERED": buffered},
            )
            assert (ran.returncode, ran.stdout) == (2, b""), (closed, buffered)


def test_an_exported_model_answers_without_streams(
    exported: tuple[Path, Path], tmp_path: Path, paint: Any
) -> None:
    picture = paint(tmp_path / "a.png")
    answers = tmp_path / "answers"
    for words, code in (
        (f"predict {picture} -m {exported[1]} -f csv", 0),
        (f"predict - -m {exported[1]} -f csv", 0),
    ):
        ran = subprocess.run(["sh", "-c", f"{COMMAND} {words} <&- >{answers} 2>&-"], timeout=60)
        assert ran.returncode == code and answers.read_text().startswith("picture,label")


def test_a_pipe_to_a_process_of_ours_that_breaks_is_a_sentence(
    command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not the output that nobody reads."""

    def broken(*_: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("safecl.cli.info.print_methods", broken)
    code, out, err = command("methods")
    assert (code, out, err) == (2, "", "safecl: Broken pipe; what was saved before is intact.\n")
