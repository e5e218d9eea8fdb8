"""A table of pictures, and what can be wrong in one."""

from pathlib import Path

import pytest

from safecl.errors import SafeclError
from safecl.lines import csv_cell
from safecl.streams.collection import make_stream
from safecl.streams.sources.table import read_manifest


def table(tmp_path: Path, paint, rows: list[str], header: str = "path,label", name: str = "m.csv") -> Path:
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
    rows = [f"{d}{c}{s}.png,{c},{s},{d}" for d in ("snow", "sun") for c in "xy" for s in ("train", "test")]
    stream = make_stream(read_manifest(table(tmp_path, paint, rows, "path,label,split,domain")))
    assert stream.protocol == "domain"
    assert stream.sessions == [("snow", ("x", "y")), ("sun", ("x", "y"))]
    assert len(stream.test(2)) == 2


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_other_delimiters_and_a_byte_order_mark_are_read(tmp_path: Path, paint, delimiter: str) -> None:
    for i in range(4):
        paint(tmp_path / f"{i}.png")
    text = "\n".join([f"path{delimiter}label", *(f"{i}.png{delimiter}{'ab'[i % 2]}" for i in range(4))])
    (tmp_path / "m.csv").write_text(text, encoding="utf-8-sig")
    assert read_manifest(tmp_path / "m.csv").classes == ("a", "b")


def test_labels_stay_words(tmp_path: Path, paint) -> None:
    csv = read_manifest(table(tmp_path, paint, ["0.png,10", "1.png,2", "2.png,007"]))
    assert csv.classes == ("007", "10", "2")


@pytest.mark.parametrize(
    ("rows", "header", "sentence"),
    [
        (["a.png,x"], "file,label", "no column 'path'; its columns are: file, label"),
        (["a.png,x", "b.png,"], "path,label", "Row 3 .* has no label"),
        (["a.png,x", ",y"], "path,label", "Row 3 .* has no path"),
        (["a.png,x,trian"], "path,label,split", "Row 2 .* has the split 'trian'"),
        (["a.png,x,test"], "path,label,split", "no row of the split train"),
        (["a.png,x,"], "path,label,domain", "Row 2 .* has no domain"),
        ([], "path,label", "lists no picture"),
        (["a.png,cat", "b.png,Cat"], "path,label", "differ only in spelling"),
        (["a.png,cat", "a.png,dog"], "path,label", "two classes"),
    ],
)
def test_what_is_wrong_is_one_sentence_with_its_row(tmp_path: Path, paint, rows, header: str, sentence: str) -> None:
    with pytest.raises(SafeclError, match=sentence):
        read_manifest(table(tmp_path, paint, rows, header))


def test_a_missing_picture_is_named_with_its_row(tmp_path: Path, paint) -> None:
    path = table(tmp_path, paint, ["a.png,x", "b.png,y"])
    (tmp_path / "b.png").unlink()
    with pytest.raises(SafeclError, match=r"b\.png \(row 3 of m\.csv; no such file\); .*stream\.unreadable=skip"):
        read_manifest(path)
    with pytest.warns(UserWarning, match=r"1 picture is omitted as unreadable: .*row 3"):
        assert read_manifest(path, unreadable="skip").classes == ("x",)


def test_a_file_that_is_no_table_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(SafeclError, match="UTF-8"):
        read_manifest(tmp_path / "m.csv")
    with pytest.raises(SafeclError, match="There is no table"):
        read_manifest(tmp_path / "nothing.csv")


def test_the_same_row_in_train_and_test_is_left_out_of_the_test(tmp_path: Path, paint) -> None:
    rows = ["a.png,x,train", "a.png,x,test", "b.png,x,test"]
    with pytest.warns(UserWarning, match="omitted from the test"):
        assert len(read_manifest(table(tmp_path, paint, rows, "path,label,split")).test) == 1


def test_a_domain_without_a_readable_picture_is_no_session(tmp_path: Path, paint) -> None:
    path = table(tmp_path, paint, ["a.png,x,sun", "b.png,x,snow", "c.png,y,sun"], "path,label,domain")
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
