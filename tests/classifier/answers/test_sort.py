"""Pictures go into folders by answer: nothing is overwritten, no name leads elsewhere, nothing is
put twice.
"""

import errno
import os
import re
import tempfile
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from safecl.classifier.answers.sort import Sorting, files_outside, folder_names, put, safe_name
from safecl.runtime.answer import Answer
from safecl.streams.pictures.find import File, picture_files
from tests.conftest import raises


def answer(label: Any, unknown: bool = False) -> Answer:
    return Answer(label, 0.9, unknown, [], {}, {}, 1.0, 0.0)


def tree(top: Path) -> list[str]:
    return sorted(str(path.relative_to(top)) for path in top.rglob("*") if not path.is_dir())


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("..", "_"),
        ("../up", "_up"),
        ("/etc/x", "_etc_x"),
        ("..\\up", "_up"),
        (".hidden", "hidden"),
        ("a\0b", "a_b"),
        ("con", "con_"),
        ("nul.txt", "nul_.txt"),
        ("end. ", "end"),
        ("", "_"),
        ("日本", "日本"),
        ("a\udcffb", "a_b"),
    ],
)
def test_a_class_name_becomes_a_folder_name_that_leads_nowhere_else(label: str, name: str) -> None:
    assert safe_name(label) == name


def test_long_names_are_cut_between_letters() -> None:
    assert safe_name("é" * 300) == "é" * 50


def test_classes_never_share_a_folder_with_each_other_or_with_unknown() -> None:
    assert folder_names(["a:b", "a?b", "Unknown", 7, "7", "A_b"]) == {
        "a:b": "a_b",
        "a?b": "a_b-2",
        "Unknown": "Unknown-2",
        7: "7",
        "7": "7-2",
        "A_b": "A_b-3",
    }


def test_a_folder_that_is_there_under_another_spelling_is_used(tmp_path: Path) -> None:
    for name in ("Pug", unicodedata.normalize("NFD", "çay"), "dog", "DOG"):
        (tmp_path / "out" / name).mkdir(parents=True)
    (tmp_path / "x.jpg").write_text("x")
    sorting = Sorting(tmp_path / "out", ["pug", "çay", "dog", "emu"])
    for label in sorting.classes:
        sorting.take(File.at(tmp_path / "x.jpg"), answer(str(label)))
    assert sorted(sorting.put) == sorted(["Pug", unicodedata.normalize("NFD", "çay"), "dog", "emu"])


@pytest.mark.parametrize("how", ["copy", "link", "move"])
def test_no_file_is_overwritten(how: Any, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/x.jpg").write_text("mine")
    (tmp_path / "out/x-2.jpg").symlink_to("nowhere")  # a link to nothing is a file, too
    (tmp_path / "x.jpg").write_text("new")
    target = Path(put(str(tmp_path / "x.jpg"), tmp_path / "out", how))
    assert (
        target.name == "x-3.jpg"
        and target.read_text() == "new"
        and target.is_symlink() == (how == "link")
    )
    assert (tmp_path / "out/x.jpg").read_text() == "mine" and (tmp_path / "x.jpg").exists() == (
        how != "move"
    )
    assert tree(tmp_path / "out") == ["x-2.jpg", "x-3.jpg", "x.jpg"]


def test_a_link_that_is_moved_still_leads_to_its_picture(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "real.jpg").write_text("picture")
    (tmp_path / "in/x.jpg").symlink_to("../real.jpg")
    assert (
        Path(put(str(tmp_path / "in/x.jpg"), tmp_path / "deep/er", "move")).read_text() == "picture"
    )
    assert (tmp_path / "real.jpg").exists() and not (tmp_path / "in/x.jpg").is_symlink()


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="no second file system")
def test_a_picture_moves_to_another_file_system(tmp_path: Path) -> None:
    (tmp_path / "x.jpg").write_text("picture")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        assert Path(put(str(tmp_path / "x.jpg"), Path(other), "move")).read_text() == "picture"
        assert tree(Path(other)) == ["x.jpg"] and not (tmp_path / "x.jpg").exists()


def test_what_cannot_be_put_is_one_sentence_and_leaves_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.jpg").write_text("new")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("safecl.classifier.answers.sort.shutil.copy2", full)
    with raises(
        "sort.not-put",
        picture=re.compile(r"x\.jpg$"),
        folder=re.compile("out$"),
        reason="no space left on device",
    ):
        put(str(tmp_path / "x.jpg"), tmp_path / "out", "copy")
    assert tree(tmp_path / "out") == []


def test_a_second_run_goes_on_and_respects_where_a_person_has_put_a_picture(tmp_path: Path) -> None:
    for name, text in (
        ("one.jpg", "1"),
        ("sub/one.jpg", "22"),
        ("twin.jpg", "1"),
        ("three.jpg", "333"),
    ):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text(text)
    out = tmp_path / "out"

    def run(labels: dict[str, Any]) -> Sorting:
        sorting = Sorting(out, ["cat", "dog"])
        for file in sorting.new(picture_files(tmp_path / "in")):
            sorting.take(file, answer(*labels[Path(file.path).name]))
        return sorting

    found = run({"one.jpg": ("cat",), "twin.jpg": ("cat",), "three.jpg": ("dog", True)})
    assert tree(out) == ["cat/one-2.jpg", "cat/one.jpg", "cat/twin.jpg", "unknown/three.jpg"]
    assert found.put == {"cat": 3, "unknown": 1} and found.there == 0
    (out / "dog").mkdir()
    (out / "cat/one.jpg").rename(out / "dog/mine.jpg")
    (tmp_path / "in/four.jpg").write_text("4444")
    again = run({"four.jpg": ("dog",)})  # the others are not even asked about
    assert tree(out) == [
        "cat/one-2.jpg",
        "cat/twin.jpg",
        "dog/four.jpg",
        "dog/mine.jpg",
        "unknown/three.jpg",
    ]
    assert again.put == {"dog": 1} and again.there == 4


def test_folders_inside_each_other(tmp_path: Path) -> None:
    (tmp_path / "in/sorted/cat").mkdir(parents=True)
    for name in ("in/a.jpg", "in/sorted/cat/b.jpg", "in/sorted2.jpg"):
        (tmp_path / name).write_text(name)

    def outside(folder: Path, top: Path) -> list[str]:
        return [
            os.path.basename(file.path)
            for file in files_outside(picture_files(folder), folder, top)
        ]

    assert outside(tmp_path / "in", tmp_path / "in/sorted") == ["a.jpg", "sorted2.jpg"]
    (tmp_path / "alias").symlink_to("in")
    assert outside(tmp_path / "alias", tmp_path / "in/sorted") == ["a.jpg", "sorted2.jpg"]
    assert outside(tmp_path / "in", tmp_path / "elsewhere") == ["a.jpg", "b.jpg", "sorted2.jpg"]
    for top in ("in", "in/../in", "."):
        with raises("sort.out.around"):
            outside(tmp_path / "in", tmp_path / top)


def test_a_picture_that_cannot_be_opened_is_not_there_already(tmp_path: Path) -> None:
    (tmp_path / "out/cat").mkdir(parents=True)
    (tmp_path / "out/cat/gone.jpg").symlink_to("nowhere")
    gone = File.at(tmp_path / "missing.jpg")
    assert list(Sorting(tmp_path / "out", ["cat"]).new(iter([gone]))) == [gone]
