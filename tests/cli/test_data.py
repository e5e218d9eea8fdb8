"""``safecl data``: list, prepare, check, show."""

import os
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from safecl.cli.data import app
from tests.conftest import raises, tells

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


def test_show_draws_every_class_of_a_session(class_folder, tmp_path: Path) -> None:
    top = class_folder(dict.fromkeys(("ant", "bee", "日本", "dog"), 5))
    words = [f"folder:{top}", "--out", str(tmp_path / "s"), "stream.step=2"]
    result = run.invoke(app, ["show", *words])
    assert result.exit_code == 0, result.exception
    sheets = sorted((tmp_path / "s").iterdir())
    assert [sheet.name for sheet in sheets] == ["session_01.png", "session_02.png"]
    for sheet in sheets:
        with Image.open(sheet) as drawn:
            assert drawn.mode == "RGB" and len(drawn.getcolors(10**6) or ()) > 100


def test_a_sheet_replaces_a_picture_only(class_folder, tmp_path: Path) -> None:
    top = class_folder({"ant": 5, "bee": 5})
    words = ["show", f"folder:{top}", "--out", str(tmp_path / "s"), "stream.step=2"]
    assert run.invoke(app, words).exit_code == run.invoke(app, words).exit_code == 0
    file = tmp_path / "s/session_01.png"
    file.write_bytes(b"PK\x03\x04 a model")
    assert run.invoke(app, words).exit_code
    assert file.read_bytes() == b"PK\x03\x04 a model"


def test_prepare_without_a_source_says_what_to_fetch(tmp_path: Path) -> None:
    result = run.invoke(app, ["prepare", "vtab", "--root", str(tmp_path)])
    tells(result.exception, "command.data.no-source", fetch=re.compile(r"vtab\.zip"))
    result = run.invoke(app, ["prepare", "vtap", "--root", str(tmp_path)])
    tells(result.exception, "name.unknown.near", given="vtap", near="vtab")


def test_what_is_there_is_not_fetched_as_well(tmp_path: Path) -> None:
    words = ["vtab", "--root", str(tmp_path), "--from", str(tmp_path), "--download"]
    with raises("command.data.from-and-download"):
        run.invoke(app, ["prepare", *words], catch_exceptions=False)


def test_check_names_what_a_run_leaves_out(class_folder) -> None:
    top = class_folder(
        {f"{part}/{c}": 3 for part in ("train", "test", "val") for c in ("ant", "bee")}
    )
    (top / "train" / "ant" / "film.mp4").write_text("x")
    result = run.invoke(app, ["check", f"folder:{top}"])
    assert result.exit_code == 0 and "6 training and 6 test pictures of 2 classes" in result.output
    left = [line for line in result.output.splitlines() if line.startswith("warning: ")]
    assert left == [
        (
            f"warning: val/ (6 pictures) in {top} is left out: only train/ and test/ are read; "
            "stream.held_out takes validation pictures from training"
        ),
        f"warning: 1 file is omitted without the ending of a picture: {top}/train/ant/film.mp4",
    ]


def test_a_jpeg_that_would_be_decoded_for_minutes_is_named_at_once(class_folder) -> None:
    top = class_folder({"ant": 5, "bee": 5})
    Image.new("RGB", (64, 48)).save(top / "ant" / "slow.jpg", progressive=True)
    data = (top / "ant" / "slow.jpg").read_bytes()
    last = data.rindex(b"\xff\xda")
    (top / "ant" / "slow.jpg").write_bytes(data[:last] + data[last:-2] * 4000 + data[-2:])
    result = run.invoke(app, ["check", f"folder:{top}"])
    assert result.exit_code == 1 and "slow.jpg (a JPEG of more than 100 scans)" in result.output


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
    tells(result.exception, "stream.key.unknown", hint=re.compile(r"stream\.unreadable"))


@pytest.mark.parametrize(
    ("word", "code", "fields"),
    [
        ("unreadable=skip", "command.data.no-stream-setting", {"word": "unreadable=skip"}),
        ("train.epochs=2", "command.data.no-stream-setting", {"word": "train.epochs=2"}),
        ("stream.step=", "setting.word.no-value", {"key": "stream.step"}),
        ("stream.step", "setting.word.form", {"word": "stream.step"}),
        ("stream.order=[a", "setting.word.unreadable", {"word": "stream.order=[a"}),
        (
            "stream.order=a",
            "setting.value.wrong",
            {"key": "stream.order", "reason": "it is a list, for example stream.order=[a]"},
        ),
        (
            "stream.step=0",
            "setting.value.wrong",
            {"key": "stream.step", "given": 0, "reason": "it must be above 0"},
        ),
    ],
)
def test_a_word_that_sets_nothing_of_the_stream_is_one_sentence(
    word: str, code: str, fields: dict[str, Any]
) -> None:
    result = run.invoke(app, ["check", "folder:x", word])
    tells(result.exception, code, **fields)


def test_a_root_is_refused_where_the_stream_is_no_named_dataset() -> None:
    result = run.invoke(app, ["check", "folder:x", "--root", "/nowhere"])
    tells(result.exception, "command.data.root-idle", root="/nowhere", name="folder:x")


def test_check_names_links_that_lead_nowhere_and_classes_that_are_not_text(class_folder) -> None:
    top = class_folder({"ant": 5, "bee": 5})
    os.symlink("loop.png", top / "ant" / "loop.png")
    os.symlink("nothing.png", top / "bee" / "dangling.png")
    os.rename(top / "bee", os.fsencode(top) + b"/caf\xe9")
    result = run.invoke(app, ["check", f"folder:{top}"])
    assert result.exit_code == 1
    assert (
        "loop.png (a link to itself)" in result.output
        and "2 pictures cannot be read" in result.output
    )
    assert r"class 'caf\udce9' of" in result.output and "not valid UTF-8" in result.output
