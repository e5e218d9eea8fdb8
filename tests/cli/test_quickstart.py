"""``safecl quickstart``: what it prints can be pasted, and teaches a first model."""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from safecl.cli.quickstart import SIGNS, STYLED

Command = Callable[..., tuple[int, str, str]]


def test_quickstart_draws_folders_and_prints_the_three_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    code, said, _ = command("quickstart", "a b")
    words = [shlex.split(line) for line in said.splitlines()]
    assert code == 0 and [line[1] for line in words] == ["learn", "learn", "predict"]
    for line, signs in zip(words, SIGNS.values(), strict=False):
        folders = {each.name: len(list(each.glob("*.png"))) for each in Path(line[2]).iterdir()}
        assert set(folders) == set(signs) and set(folders.values()) == {len(STYLED)}
    taught = {name for signs in SIGNS.values() for name in signs}
    assert {file.stem for file in Path(words[2][2]).iterdir()} == {*taught, "stranger"}
    pictures = [Image.open(file).tobytes() for file in Path("a b").rglob("*.png")]
    assert len(set(pictures)) == len(pictures)
    models = {line[line.index("--model") + 1] for line in words}
    assert models == {"a b/signs.safecl"} and not Path("a b/signs.safecl").exists()


def test_quickstart_touches_no_folder_that_holds_something(
    tmp_path: Path, command: Command
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    code, _, said = command("quickstart", str(tmp_path))
    assert code == 2 and "exists already" in said and len(list(tmp_path.iterdir())) == 1


@pytest.mark.slow
def test_the_printed_commands_teach_and_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    _, said, _ = command("quickstart")
    for line in said.splitlines():
        code, told, _ = command(*shlex.split(line)[1:])
        assert code == 0
    answers = {
        Path(line.split()[-1]).stem: line.split()[0]
        for line in told.splitlines()
        if line.endswith(".png")
    }
    assert len(answers) >= 4 and all(
        name == answer for name, answer in answers.items() if answer != "unknown"
    )
