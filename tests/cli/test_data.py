"""``safecl data``: list, prepare, check."""

import os
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from safecl.cli.data import app
from safecl.errors import SafeclError

run = CliRunner()


def test_list_names_every_stream(tmp_path: Path) -> None:
    result = run.invoke(app, ["list", "--root", str(tmp_path)], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    for name in ("glyphs", "cifar100", "imagenet-r", "domainnet", "folder:PATH"):
        assert name in result.output


def test_prepare_and_check_on_the_command_line(tmp_path: Path, paint) -> None:
    with zipfile.ZipFile(tmp_path / "mine.zip", "w") as archive:
        for i in range(12):
            part = "train" if i < 8 else "test"
            archive.write(paint(tmp_path / f"{i}.png"), f"vtab/{part}/c{i % 4}/{i}.png")
    root = ["--root", str(tmp_path / "root")]
    result = run.invoke(app, ["prepare", "vtab", "--from", str(tmp_path / "mine.zip"), *root])
    assert result.exit_code == 0 and "VTAB is in" in result.output
    result = run.invoke(app, ["check", "VTAB", *root])
    assert result.exit_code == 0 and "warning: VTAB has 50 classes; here are 4" in result.output


def test_check_exits_with_one_where_there_is_a_problem(class_folder) -> None:
    top = class_folder({"ant": 5, "bee": 5})
    (top / "ant" / "broken.jpg").write_text("x")
    result = run.invoke(app, ["check", f"folder:{top}"])
    assert result.exit_code == 1 and "broken.jpg" in result.output


def test_prepare_without_a_source_says_what_to_fetch(tmp_path: Path) -> None:
    result = run.invoke(app, ["prepare", "vtab", "--root", str(tmp_path)])
    assert isinstance(result.exception, SafeclError) and "vtab.zip" in str(result.exception)
    result = run.invoke(app, ["prepare", "vtap", "--root", str(tmp_path)])
    assert "did you mean 'vtab'" in str(result.exception)


def test_check_reads_what_a_run_with_the_same_settings_would_read(class_folder, paint) -> None:
    top = class_folder({"ant": 5, "bee": 5})
    (top / "ant" / "broken.jpg").write_text("x")
    for name in ("ant", "bee"):
        paint(top / name / "same.png", seed=1)
    name = [f"folder:{top}", "stream.test_fraction=0"]
    result = run.invoke(app, ["check", *name])
    assert result.exit_code == 1 and result.output.count("problem: ") == 2
    result = run.invoke(app, ["check", *name, "stream.unreadable=skip"])
    assert result.exit_code == 1 and result.output.count("problem: ") == 1
    assert "warning: 1 picture is omitted as unreadable" in result.output
    result = run.invoke(app, ["check", *name, "stream.unreadable=skip", "stream.duplicates=allow"])
    assert result.exit_code == 0 and "warning: 1 picture is in more than one class" in result.output
    result = run.invoke(app, ["check", *name, "stream.unreadible=skip"])
    assert isinstance(result.exception, SafeclError) and "did you mean 'stream.unreadable'" in str(result.exception)


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("unreadable=skip", "'unreadable=skip' is not a setting of the stream, such as stream.unreadable=skip."),
        ("train.epochs=2", "'train.epochs=2' is not a setting of the stream, such as stream.unreadable=skip."),
        ("stream.step=", "stream.step= has no value"),
        ("stream.step", "'stream.step' is not of the form key=value"),
        ("stream.order=[a", "cannot be read; put quotes around it"),
        ("stream.order=a", "stream.order=a is wrong: it is a list, for example stream.order=[a]."),
        ("stream.step=0", "stream.step=0 is wrong: it must be above 0."),
    ],
)
def test_a_word_that_sets_nothing_of_the_stream_is_one_sentence(word: str, sentence: str) -> None:
    result = run.invoke(app, ["check", "folder:x", word])
    assert isinstance(result.exception, SafeclError) and sentence in str(result.exception)


def test_a_root_is_refused_where_the_stream_is_no_named_dataset() -> None:
    result = run.invoke(app, ["check", "folder:x", "--root", "/nowhere"])
    assert isinstance(result.exception, SafeclError)
    assert str(result.exception).startswith("--root /nowhere means nothing to folder:x")


def test_check_names_links_that_lead_nowhere_and_classes_that_are_not_text(class_folder) -> None:
    top = class_folder({"ant": 5, "bee": 5})
    os.symlink("loop.png", top / "ant" / "loop.png")
    os.symlink("nothing.png", top / "bee" / "dangling.png")
    os.rename(top / "bee", os.fsencode(top) + b"/caf\xe9")
    result = run.invoke(app, ["check", f"folder:{top}"])
    assert result.exit_code == 1
    assert "loop.png (a link to itself)" in result.output and "2 pictures cannot be read" in result.output
    assert r"class 'caf\udce9' of" in result.output and "not valid UTF-8" in result.output
