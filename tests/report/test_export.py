"""Figures and tables as files hold what the page shows."""

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from safecl.lines import slug
from safecl.report.page import all_tables, distinct, saved, write_files
from safecl.report.panels import choose, curves
from safecl.report.runs import read_run
from safecl.report.table import Cell, Column, Table, as_csv, as_latex
from tests.conftest import raises


def test_every_figure_is_there_as_svg_and_png_and_every_table_as_csv_and_latex(
    make_run: Any, tmp_path: Path
) -> None:
    folders = [
        make_run("safe", sessions=2, held_out=True),
        make_run("other", method="ranpac", sessions=2),
    ]
    written = write_files(folders, tmp_path / "out")
    assert sorted(written) == sorted((tmp_path / "out").iterdir())
    names = {
        kind: {path.stem for path in written if path.suffix == f".{kind}"}
        for kind in ("svg", "png", "csv", "tex")
    }
    assert names["svg"] == names["png"] and names["csv"] == names["tex"]
    assert {"accuracy", "bars-safe", "weights-safe"} <= names["svg"]
    assert {"loss-safe-fast", "loss-ranpac-ranpac"} <= names["svg"]
    assert {
        "accuracy-at-the-end",
        "accuracy-after-each-session-in-percent",
        "decisions-safe",
        "time-safe",
    } <= names["csv"]
    for path in written:
        if path.suffix == ".png":
            with Image.open(path) as image:
                assert image.getpixel((0, 0))[:3] == (255, 255, 255)  # not transparent


def test_the_same_figure_gives_the_same_bytes() -> None:
    for kind in ("svg", "png"):
        first, second = (saved(curves([])["wide"].figure(), kind) for _ in range(2))
        assert first == second


def test_a_csv_file_has_numbers_and_spreads_of_their_own(make_run: Any) -> None:
    runs = [read_run(make_run(f"s{seed}", method="ranpac", seed=seed)) for seed in (0, 1)]
    (row,) = csv.DictReader(io.StringIO(as_csv(all_tables(choose(runs))["accuracy"][0])))
    finals = [run.metrics[-1].pooled["ranpac"] or 0.0 for run in runs]
    assert float(row["Final accuracy"]) == pytest.approx(sum(finals) / 2, rel=1e-5)
    assert float(row["Final accuracy ±"]) == pytest.approx(
        abs(finals[0] - finals[1]) / 2**0.5, rel=1e-4
    )
    assert row["Seeds"] == "2"


def test_groups_of_columns_and_special_characters_survive_in_both_formats() -> None:
    rows = [[Cell("a & b"), Cell("50.0 %", best=True, value=0.5), Cell("–")]]
    table = Table(
        "T", [Column("x_y", words=True), Column("final", "SAFE"), Column("±", "SAFE")], rows
    )
    assert list(csv.reader(io.StringIO(as_csv(table)))) == [
        ["x_y", "SAFE final", "SAFE ±"],
        ["a & b", "0.5", ""],
    ]
    assert as_latex(table).splitlines() == [
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r" & \multicolumn{2}{c}{SAFE} \\",
        r"x\_y & final & $\pm$ \\",
        r"\midrule",
        r"a \& b & \textbf{50.0 \%} & -- \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_names_that_are_alike_as_files_do_not_replace_each_other() -> None:
    assert slug("SAFE (a b)") == slug("SAFE (a-b)") == "safe-a-b"
    assert list(distinct([("a", 1), ("b", 2), ("a", 3)])) == [("a", 1), ("b", 2), ("a-2", 3)]


def test_a_folder_that_cannot_be_made_is_named(make_run: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with raises("report.folder.not-made", folder=re.compile("file$")):
        write_files([make_run(done=1)], tmp_path / "file")
