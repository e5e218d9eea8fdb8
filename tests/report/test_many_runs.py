"""A page of hundreds of runs stays small: what cannot be read side by side is not drawn."""

from pathlib import Path
from typing import Any

import pytest

from safecl.report.drawing import inline_svg
from safecl.report.page import write_page
from safecl.report.panels import DETAILED, DRAWN

from .conftest import Reader, write_run


@pytest.fixture(scope="module")
def hundreds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of 100 configurations with 2 seeds each."""
    place = tmp_path_factory.mktemp("many")
    folders = [
        write_run(
            place / f"{i}-{seed}",
            method="ranpac",
            sessions=1,
            seed=seed,
            examples=0,
            preset=f"p{i}",
        )
        for i in range(100)
        for seed in range(2)
    ]
    return write_page(folders, place / "page.html", "Many")


def test_a_page_of_two_hundred_runs_is_small(hundreds: Path) -> None:
    assert hundreds.stat().st_size < 2_000_000


def test_all_are_in_the_tables_and_the_best_are_drawn(hundreds: Path) -> None:
    seen = Reader(hundreds.read_text(encoding="utf-8"))
    assert (
        f"The figures show the {DRAWN} of 100 configurations that are best at the end" in seen.text
    )
    assert (
        f"Of the {DETAILED} that are best at the end; safecl report RUN draws any other."
        in seen.text
    )
    assert "100 configurations, 2 seeds each." in seen.text
    _, _, table = seen.text.partition("At the end")
    assert all(f"RanPAC (preset p{i})" in table for i in range(100))
    # curves in two widths, bars of each that is drawn, and losses of some
    assert seen.tags["svg"] == 2 + DRAWN + DETAILED


def test_a_figure_has_two_decimals_and_user_texts_keep_theirs() -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2, 2))
    axes: Any = figure.add_subplot()
    axes.plot([0.123456, 1], [0, 0.654321])
    axes.set_title("1.23456 <&>")
    text = str(inline_svg(figure, "a line", "x"))
    assert "1.23456 &lt;&amp;&gt;" in text and "654321" not in text
