"""A table of pictures, and what can be wrong in one."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from safecl.lines import csv_cell
from safecl.streams.collection import make_stream
from safecl.streams.sources.table import read_manifest
from tests.conftest import raises


def table(
    tmp_path: Path, paint, rows: list[str], header: str = "path,label", name: str = "m.csv"
) -> Path:
    for row in rows:
        picture = row.replace(";", ",").split(",")[0].strip('" ')
        if picture and not (tmp_path / picture).exists():
            paint(tmp_path / picture)
    path = tmp_path / name
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def test_paths_are_relative_to_the_manifest(tmp_path: Path, paint) -> None:
    data = read_manifest(table(tmp_path, paint, [f"in/{i}.png,{'ab'[i % 2]}" for i in range(10)]))
    assert (len(data.train), len(data.test), data.classes) == (8, 2, ("a", "b"))
    assert data.train.where(0).startswith(str(tmp_path))


def test_split_and_domain_columns_are_used(tmp_path: Path, paint) -> None:
    rows = [
        f"{d}{c}{s}.png,{c},{s},{d}"
        for d in ("snow", "sun")
        for c in "xy"
        for s in ("train", "test")
    ]
    stream = make_stream(read_manifest(table(tmp_path, paint, rows, "path,label,split,domain")))
    assert stream.protocol == "domain"
    assert stream.sessions == [("snow", ("x", "y")), ("sun", ("x", "y"))]
    assert len(stream.test(2)) == 2


def test_a_half_of_a_split_table_is_read_alone(tmp_path: Path, paint) -> None:
    rows = [f"{c}{i}.png,{c},{'test' if i > 1 else 'train'}" for c in "xy" for i in range(5)]
    path = table(tmp_path, paint, rows, "path,label,split")
    for only, count, other, way in (("train", 4, 6, "safecl eval"), ("test", 6, 4, "give another")):
        left = (
            rf"^{other} rows of another split are left out of .*: only those of {only} are read;"
            rf" {way}"
        )
        with pytest.warns(UserWarning, match=left):
            data = read_manifest(path, only=only, test_fraction=0)
        assert (len(data.train), len(data.test)) == (count, 0)


@pytest.mark.filterwarnings("error")
def test_names_of_columns_may_have_capitals(tmp_path: Path, paint) -> None:
    rows = [f"{c}{s}.png,{c},{s},snow" for c in "xy" for s in ("Train", "test")]
    data = read_manifest(table(tmp_path, paint, rows, "Path,LABEL,Split,Domain"))
    assert (len(data.train), len(data.test), data.classes) == (2, 2, ("x", "y"))
    assert make_stream(data).protocol == "domain"


def test_a_third_split_is_left_out_and_said(tmp_path: Path, paint) -> None:
    splits = ("train", "val", "test", "test")
    rows = [f"{c}{i}.png,{c},{split}" for c in "xy" for i, split in enumerate(splits)]
    path = table(tmp_path, paint, rows, "path,label,split")
    told = "only those of {} are read;"
    for only, count, left, read in (
        (None, 2, 2, "train and test"),
        ("train", 2, 6, "train"),
        ("test", 4, 4, "test"),
    ):
        with pytest.warns(UserWarning, match=f"^{left} rows .*{told.format(read)}"):
            data = read_manifest(path, only=only, test_fraction=0.0)
        assert len(data.train) == count
        assert len(data.test or ()) == (4 if only is None else 0)
    # where there is none of that name, these are the test pictures
    path = table(tmp_path, paint, [row for row in rows if "test" not in row], "path,label,split")
    assert len(read_manifest(path).test) == 2


def test_domains_that_a_person_reads_as_one_are_refused(tmp_path: Path, paint) -> None:
    rows = [f"{d}{c}.png,{c},{d}" for d in ("art", "\u0430rt") for c in "xy"]
    why = "look the same, but one has a Cyrillic small letter a"
    with raises("name.alike", several="domains", one="art", other="\u0430rt", why=why):
        read_manifest(table(tmp_path, paint, rows, "path,label,domain"))


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_other_delimiters_and_a_byte_order_mark_are_read(
    tmp_path: Path, paint, delimiter: str
) -> None:
    for i in range(4):
        paint(tmp_path / f"{i}.png")
    text = "\n".join(
        [f"path{delimiter}label", *(f"{i}.png{delimiter}{'ab'[i % 2]}" for i in range(4))]
    )
    (tmp_path / "m.csv").write_text(text, encoding="utf-8-sig")
    assert read_manifest(tmp_path / "m.csv").classes == ("a", "b")


def test_labels_stay_words(tmp_path: Path, paint) -> None:
    csv = read_manifest(table(tmp_path, paint, ["0.png,10", "1.png,2", "2.png,007"]))
    assert csv.classes == ("007", "10", "2")


@pytest.mark.parametrize(
    ("rows", "header", "refused"),
    [
        (
            ["a.png,x"],
            "file,label",
            partial(
                raises, "table.column.missing", needed="path", columns=re.compile("^file, label")
            ),
        ),
        (["a.png,x", "b.png,"], "path,label", partial(raises, "table.row.no-label", number=3)),
        (["a.png,x", ",y"], "path,label", partial(raises, "table.row.no-path", number=3)),
        (
            ["a.png,x,trian"],
            "path,label,split",
            partial(raises, "table.row.split", number=2, split="trian"),
        ),
        (["a.png,x,test"], "path,label,split", partial(raises, "table.no-train")),
        (["a.png,x,"], "path,label,domain", partial(raises, "table.row.no-domain", number=2)),
        ([], "path,label", partial(raises, "table.empty")),
        (
            ["a.png,cat", "b.png,Cat"],
            "path,label",
            partial(raises, "name.alike", why="differ only in spelling"),
        ),
        (["a.png,cat", "a.png,dog"], "path,label", partial(raises, "pictures.two-classes")),
    ],
)
def test_what_is_wrong_is_one_sentence_with_its_row(
    tmp_path: Path, paint, rows, header: str, refused: Callable[[], Any]
) -> None:
    with refused():
        read_manifest(table(tmp_path, paint, rows, header))


def test_a_missing_picture_is_named_with_its_row(tmp_path: Path, paint) -> None:
    path = table(tmp_path, paint, ["a.png,x", "b.png,y"])
    (tmp_path / "b.png").unlink()
    with raises(
        "pictures.unreadable",
        names=re.compile(r"b\.png \(row 3 of m\.csv; no such file\)"),
        hint=re.compile(r"stream\.unreadable=skip"),
    ):
        read_manifest(path)
    with pytest.warns(UserWarning, match=r"1 picture is omitted as unreadable: .*row 3"):
        assert read_manifest(path, unreadable="skip").classes == ("x",)


def test_a_file_that_is_no_table_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_bytes(b"\xff\xfe\x00\x01")
    with raises("table.not-utf"):
        read_manifest(tmp_path / "m.csv")
    with raises("table.missing"):
        read_manifest(tmp_path / "nothing.csv")


def test_the_same_row_in_train_and_test_is_left_out_of_the_test(tmp_path: Path, paint) -> None:
    rows = ["a.png,x,train", "a.png,x,test", "b.png,x,test"]
    with pytest.warns(UserWarning, match="omitted from the test"):
        assert len(read_manifest(table(tmp_path, paint, rows, "path,label,split")).test) == 1


def test_a_domain_without_a_readable_picture_is_no_session(tmp_path: Path, paint) -> None:
    path = table(
        tmp_path, paint, ["a.png,x,sun", "b.png,x,snow", "c.png,y,sun"], "path,label,domain"
    )
    (tmp_path / "b.png").unlink()
    with pytest.warns(UserWarning, match="as unreadable"):
        data = read_manifest(path, unreadable="skip", test_fraction=0)
    assert [name for name, _ in make_stream(data, protocol="domain").sessions] == ["sun"]


def test_cells_that_are_kept_from_being_formulas_are_the_names_again(tmp_path: Path, paint) -> None:
    names = ["=cmd", "'=cmd", "-x", "-1", "'quoted'", "@a"]
    rows = [f"{csv_cell(name)}.png,{csv_cell(name)}" for name in names]
    for name in names:
        paint(tmp_path / f"{name}.png")
    (tmp_path / "m.csv").write_text("\n".join(["path,label", *rows]), encoding="utf-8")
    data = read_manifest(tmp_path / "m.csv", test_fraction=0.0)
    assert list(data.train.labels) == names and "'=cmd.png,'=cmd" in rows
