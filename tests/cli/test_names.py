"""Names of files, classes and sessions that a terminal or a spreadsheet would obey."""

import io
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from safecl.lines import HIDDEN, shown


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, write_folder: Callable[..., Path], new_model: Any
) -> Path:
    """A model of two classes, and another folder to learn from."""
    top = tmp_path_factory.mktemp("names")
    model = new_model("simplecil")
    model.learn(write_folder(top / "one", "ab"))
    model.save(top / "m.safecl")
    write_folder(top / "two", "c", seed=1)
    return top


STEERING = "\x1b[31m\u202e\u200bred\n.png"


@pytest.fixture
def strange(place: Path, tmp_path: Path) -> Path:
    """Pictures whose names a terminal or a spreadsheet would obey, one that cannot be read among
    them.
    """
    folder = tmp_path / "strange"
    folder.mkdir()
    for name in (STEERING, "[red]bold[bold].png", "-1+cmd.png"):
        shutil.copy(place / "one" / "a" / "000.png", folder / name)
    (folder / f"x{STEERING}").write_bytes(b"rubbish")
    return folder


@pytest.mark.parametrize("form", ["table", "csv", "jsonl"])
def test_names_of_files_steer_neither_terminal_nor_spreadsheet(
    form: str,
    say: Callable[..., tuple[int, str, str]],
    strange: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = b"".join(name + b"\n" for name in os.listdir(os.fsencode(strange)) if b"\n" not in name)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(names)))
    model = str(Path.cwd() / "m.safecl")
    code, out, err = say("predict", str(strange), "--model", model, "--format", form)
    assert code == 2 and not HIDDEN.search((out + err).replace("\n", ""))
    # that ten pictures are too few to be sure, and the picture that cannot be read
    note, problem = err.splitlines()
    assert note.startswith("Note: ") and problem.count(str(strange / shown(f"x{STEERING}"))) == 1
    if form == "jsonl":  # the exact names
        assert {json.loads(line)["picture"] for line in out.splitlines()} == {
            str(path) for path in strange.iterdir()
        }
        return
    for name in (STEERING, "[red]bold[bold].png", "-1+cmd.png"):
        assert str(strange / shown(name)) in out
    monkeypatch.chdir(strange)
    code, out, err = say("predict", "-", "--model", model, "--format", form)
    assert code == 0 and ("\n'-1+cmd.png," if form == "csv" else "  -1+cmd.png\n") in out


def test_a_name_with_lines_in_a_command_is_one_line_of_its_error(
    say: Callable[..., tuple[int, str, str]],
) -> None:
    code, _, err = say("inspect", "a\nsafecl: all is well.safecl")
    assert code == 2 and err.count("\n") == 1 and r"a\nsafecl: all is well.safecl" in err


def test_names_that_nobody_could_read_are_not_learned(
    say: Callable[..., tuple[int, str, str]], place: Path, tmp_path: Path
) -> None:
    before = (place / "m.safecl").read_bytes()
    (tmp_path / "data" / "c\u202ed").mkdir(parents=True)
    shutil.copy(place / "two" / "c" / "000.png", tmp_path / "data" / "c\u202ed" / "0.png")
    for words in (
        ("learn", str(tmp_path / "data"), "-m", "m.safecl"),
        ("rename", "m.safecl", "a", "a\u200bb"),
        ("learn", "two", "-m", "m.safecl", "--name", "may\x1b[2J"),
    ):
        code, _, err = say(*words)
        assert (
            code == 2
            and "control, bidirectional or zero-width character" in err
            and err.strip().isprintable()
        )
    assert "needs a name" in say("learn", "two", "-m", "m.safecl", "--name", "")[2]
    assert (place / "m.safecl").read_bytes() == before
