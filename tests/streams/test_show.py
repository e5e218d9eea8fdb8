"""Contact sheets: names are drawn in letters that exist, and stay on the sheet."""

from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from safecl.streams import show


def test_letters_that_no_font_has_become_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show, "wide_fonts", lambda: ())
    assert show.spelt("Гвоздика ü")[1] == "Гвоздика ü"
    assert show.spelt("日本_a\nb")[1] == r"\u65e5\u672c_a b"


def test_a_font_that_has_the_letters_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    other = show.font_folder() / "DejaVuSerif.ttf"
    monkeypatch.setattr(show, "wide_fonts", lambda: (Path("nothing.ttf"), other))
    covers = show.letters(other) | {"日"}
    real = show.letters
    monkeypatch.setattr(show, "letters", lambda path: covers if path == other else real(path))
    font, text = show.spelt("日本"[:1] + "a")
    assert font.getname()[0] == "DejaVu Serif" and text == "日a"


def test_a_long_name_ends_inside_the_sheet_with_its_count() -> None:
    image = Image.new("RGB", (240, 20), "white")
    show.write(ImageDraw.Draw(image), 0, "very_long_class_name_" * 12, " (6)", 240)
    right = image.convert("L").point(lambda value: 255 - value).getbbox()
    assert right is not None and 180 < right[2] <= 240 - show.MARGIN + 1
