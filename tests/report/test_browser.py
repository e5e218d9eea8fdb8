"""A real browser opens the page: no error, no request, every figure in words, nothing wider than
the screen.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup
from PIL import Image

from safecl.report import panels
from safecl.report.gallery import Card, thumbnail
from safecl.report.page import write_page
from safecl.report.table import make_table
from safecl.report.templates import Tile, render, write

from .browser import Page, browser, find_chromium

pytestmark = pytest.mark.skipif(
    find_chromium() is None or os.name != "posix", reason="no Chromium is installed here"
)
UNTOLD = """[...document.querySelectorAll("svg, img")]
    .filter((one) => !one.closest("svg > *")).filter((one) =>
  !(one.getAttribute("aria-label") || one.getAttribute("alt"))).length"""


@pytest.fixture(scope="module")
def tab() -> Iterator[Page]:
    with browser(str(find_chromium())) as page:
        yield page


@pytest.fixture(scope="module")
def file(drawn: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("browser") / "page.html"
    path.write_text(drawn, encoding="utf-8")
    return path


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 820, 1280])
def test_page_opens_without_error_request_or_overflow(
    tab: Page, file: Path, width: int, dark: bool
) -> None:
    tab.open(file, width, dark=dark)
    assert tab.complaints() == [] and tab.requests() == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate(UNTOLD) == 0 and tab.evaluate("document.querySelectorAll('svg').length") > 5
    brightness = tab.evaluate(
        "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]"
    )
    assert brightness < 60 if dark else brightness > 200


def test_buttons_do_what_they_say(tab: Page, file: Path) -> None:
    tab.open(file)
    assert tab.evaluate("document.querySelectorAll('button[hidden]').length") == 0
    tab.evaluate("document.getElementById('theme').click()")
    assert tab.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
    assert tab.evaluate("document.querySelectorAll('details.section[open]').length") > 0
    tab.evaluate("document.getElementById('fold').click()")
    assert tab.evaluate("document.querySelectorAll('details.section[open]').length") == 0
    copied = """(async () => {
      let text = null;
      Object.defineProperty(navigator, "clipboard",
          {value: {writeText: async (given) => { text = given; }}});
      document.querySelector("button.copy").click();
      await new Promise((done) => setTimeout(done, 50));
      return text;
    })()"""
    assert tab.evaluate(copied).startswith("safecl run glyphs method=safe")
    assert tab.complaints() == []


def test_on_paper_everything_is_unfolded_and_light(tab: Page, file: Path) -> None:
    tab.open(file, dark=True)
    tab.evaluate("document.getElementById('fold').click()")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert tab.evaluate("document.querySelectorAll('details:not([open])').length") == 0
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert tab.evaluate("document.querySelectorAll('details.section[open]').length") == 0
    assert tab.pdf().startswith(b"%PDF")
    tab.call("Emulation.setEmulatedMedia", media="print")
    assert tab.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
    tab.call("Emulation.setEmulatedMedia", media="")


def test_long_tables_are_sorted_by_a_click(
    tab: Page, make_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # drawing is not what is tried here
    monkeypatch.setattr(panels, "inline_svg", lambda *_: Markup("<svg></svg>"))
    folders = [
        make_run(f"r{i}", method="finetune", sessions=1, examples=0, preset=f"p{i}")
        for i in range(9)
    ]
    tab.open(write_page(folders, tmp_path / "page.html", "Nine"))
    rows = "[...document.querySelectorAll('table.sortable tbody tr')]"
    tab.evaluate("document.querySelector('table.sortable').tHead.rows[0].cells[1].click()")
    found = tab.evaluate(f"{rows}.map((row) => Number(row.cells[1].dataset.value))")[:9]
    assert found == sorted(found, reverse=True) and tab.complaints() == []


NUMBERS = make_table(
    "Numbers", ("class", "a word", "pictures"), [["cat", "x" * 300, "12"]] * 9, words=["a word"]
)
MODEL = {
    "subject": "safe",
    "facts": [Tile("3", "classes", "learned from 9 pictures")],
    "measured": NUMBERS,
    "measured_on": "a folder",
    "measured_bins": [],
    "calibration": {
        "pictures": 35,
        "accuracy": 0.9,
        "error": 0.1,
        "bins": [(0.3, 0.25, 4), (0.97, 1.0, 31)],
    },
    "advice": ["More pictures of A would help most."],
    "galleries": [("Confusions", "Pictures.", [])],
    "classes": NUMBERS,
    "history": NUMBERS,
    "choice": None,
}
TARGET = {
    "name": "table-x",
    "title": "A target",
    "source": "a table",
    "caption": "What it shows.",
    "streams": ["glyphs"],
    "alt": "A drawing",
    "table": NUMBERS,
    "claims": [("It holds", True)],
    "sentences": [],
    "left_out": ["no data"],
    "files": ["table-x.csv"],
}
FIGURE = "data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciLz4="


_DRAWN = thumbnail(Image.new("RGB", (300, 100), (90, 120, 200)), 240)
LOOK = Card([(_DRAWN, "a.jpg"), (_DRAWN, "What speaks for it")], "x" * 60, ["folder/" * 20])


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("template", "values"),
    [
        ("model.html", MODEL),
        (
            "reproduction.html",
            {"about": "small", "targets": [TARGET], "figures": {"table-x": FIGURE}},
        ),
        (
            "pictures.html",
            {"subject": "What it looked at", "about": "Some words.", "cards": [LOOK, LOOK]},
        ),
    ],
)
def test_pages_of_models_reproductions_and_pictures_are_like_those_of_runs(
    tab: Page, tmp_path: Path, template: str, values: dict[str, Any], dark: bool
) -> None:
    tab.open(
        write(tmp_path / "page.html", render(template, title="A page", **values)), 390, dark=dark
    )
    assert tab.complaints() == [] and tab.requests() == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390 and tab.evaluate(UNTOLD) == 0
    brightness = tab.evaluate(
        "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]"
    )
    assert brightness < 60 if dark else brightness > 200
    tab.evaluate("document.getElementById('fold').click()")
    assert tab.evaluate("document.querySelectorAll('details.section[open]').length") == 0
