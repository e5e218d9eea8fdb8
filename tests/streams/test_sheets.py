"""Contact sheets: names are drawn in letters that exist, and stay on the sheet."""

from PIL import Image, ImageDraw

from safecl.streams import sheets


def test_letters_that_the_font_lacks_become_escapes() -> None:
    assert sheets.in_letters("Гвоздика ü")[1] == "Гвоздика ü"
    assert sheets.in_letters("日本_a\nb")[1] == r"\u65e5\u672c_a b"


def test_a_long_name_ends_inside_the_sheet_with_its_count() -> None:
    image = Image.new("RGB", (240, 20), "white")
    sheets.write_line(ImageDraw.Draw(image), 0, "very_long_class_name_" * 12, " (6)", 240)
    right = image.convert("L").point(lambda value: 255 - value).getbbox()
    assert right is not None and 180 < right[2] <= 240 - sheets.MARGIN + 1
