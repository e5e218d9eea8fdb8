"""``safecl predict -`` answers a line as soon as it is there."""

import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from safecl.cli import answer_words
from safecl.cli.answer_words import predict_all
from safecl.runtime.answer import Answer


class Echo:
    """Answers the name of a file, and says how many pictures it was asked about at a time."""

    classes_ = ("a", "b")
    outputs = ("safe",)
    calibration = None
    known = classes_

    def __init__(self) -> None:
        self.asked: list[int] = []

    def cannot_tell(self, unknown: float | None) -> str:
        return ""

    def answers(self, pictures: Any, **_: Any) -> Iterator[Answer]:
        self.asked.append(len(pictures))
        for file in pictures:
            yield Answer(Path(file.path).name, 1.0, False, [], {}, {}, 0.0, 0.0)


def test_each_line_is_answered_before_the_next_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whoever asks waits for the answer before asking again: if answers waited for more lines, this
    would not end.
    """
    for name in "abc":
        (tmp_path / name).write_bytes(b"x")
    reading, writing = os.pipe()
    monkeypatch.setattr(sys, "stdin", os.fdopen(reading))
    heard: list[str] = []
    questions = iter([f"{tmp_path}/{name}\n" for name in ("a", "b", "c", "gone")])

    def ask() -> bool:
        question = next(questions, None)
        os.write(writing, question.encode()) if question else os.close(writing)
        return question is not None

    def hear(text: str) -> None:  # in place of the terminal
        heard.append(text.split()[0])
        ask()

    monkeypatch.setattr(answer_words, "print_line", hear)
    model = Echo()
    ask()
    assert predict_all(["-"], model, tmp_path / "m.safecl", 0.05, "table", None) == 2
    assert heard[:3] == ["a", "b", "c"] and len(heard) == 4 and model.asked == [1, 1, 1]
    assert "gone (no such file)" in capfd.readouterr().err


def test_lines_that_are_there_already_are_asked_about_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"x")
    lines = f"{tmp_path}/a\n".encode() * 600
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines + lines.splitlines()[0])))
    model = Echo()
    assert predict_all(["-"], model, tmp_path / "m.safecl", 0.05, "jsonl", None) == 0
    assert sum(model.asked) == 601 and max(model.asked) == answer_words.CHUNK
