"""A contact sheet of each session of a stream: a row of training pictures for every class."""

import io
from pathlib import Path

from matplotlib.ft2font import FT2Font
from PIL import Image, ImageDraw, ImageFont, ImageOps

from safecl.lines import counted
from safecl.outputs import write_output
from safecl.streams.drawn.drawing import font_folder
from safecl.streams.stream import Session, Stream, positions

MARGIN = 4  # pixels around a picture
LINE = 15  # pixels of a line of text
POINTS = 11  # of its letters
NARROWEST = 240  # pixels, so that there is room for names


def write_sheets(
    stream: Stream, folder: Path, *, per_class: int = 8, side: int = 64, classes: int = 20
) -> list[Path]:
    """One PNG per session, at most ``classes`` rows of ``per_class`` pictures; gives the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for session in stream:
        path = folder / f"session_{session.number:02d}.png"
        buffer = io.BytesIO()
        sheet(session, per_class, side, classes).save(buffer, "png")
        write_output(path, buffer.getvalue(), "png")
        written.append(path)
    return written


def sheet(session: Session, per_class: int, side: int, classes: int) -> Image.Image:
    """A row for each of the first ``classes`` classes: its name, how many pictures it has, the
    first ``per_class`` of them.
    """
    where = positions(session.train.labels)
    rows = session.classes[:classes]
    step = side + MARGIN
    width = max(per_class * step + MARGIN, NARROWEST)
    image = Image.new("RGB", (width, LINE + MARGIN + len(rows) * (step + LINE)), "white")
    draw = ImageDraw.Draw(image)
    more = f", {len(rows)} shown" if len(rows) < len(session.classes) else ""
    count = counted(len(session.classes), "class", "classes")
    write_line(draw, 0, f"{session.number}: {session.name}", f" ({count}{more})", width)
    for row, label in enumerate(rows):
        top = LINE + MARGIN + row * (step + LINE)
        found = where.get(label, [])
        write_line(draw, top, str(label), f" ({len(found)})", width)
        for column, index in enumerate(found[:per_class]):
            small = ImageOps.contain(session.train.decode(index), (side, side))
            image.paste(small, (MARGIN + column * step, top + LINE))
    return image


def write_line(draw: ImageDraw.ImageDraw, top: int, name: str, tail: str, width: int) -> None:
    """Write a name, shortened to fit, and what follows it."""
    font, text = in_letters(name)
    room = width - 2 * MARGIN
    if draw.textlength(text + tail, font) > room:
        while text and draw.textlength(f"{text}…{tail}", font) > room:
            text = text[:-1]
        text += "…"
    draw.text((MARGIN, top), text + tail, fill="black", font=font)


def in_letters(name: str) -> tuple[ImageFont.FreeTypeFont, str]:
    """A font, and the name in its letters; those that it lacks become escapes."""
    font = font_folder() / "DejaVuSans.ttf"
    known = FT2Font(str(font)).get_charmap()
    text = "".join(
        letter if ord(letter) in known else letter.encode("ascii", "backslashreplace").decode()
        for letter in " ".join(name.split())
    )
    return ImageFont.truetype(str(font), POINTS), text
