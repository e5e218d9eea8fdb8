"""A contact sheet of each session: one row of training pictures per class."""

import io
from functools import cache
from pathlib import Path

from matplotlib.font_manager import findSystemFonts
from matplotlib.ft2font import FT2Font
from PIL import Image, ImageDraw, ImageFont, ImageOps

from safecl.lines import counted
from safecl.outputs import write_output
from safecl.streams.drawn.drawing import font_folder
from safecl.streams.stream import Session, Stream, positions

MARGIN, LINE, POINTS = 4, 15, 11
# Parts of the file names of fonts with letters that DejaVu lacks.
WIDE_FONTS = ("cjk", "notosans", "unifont", "unicode", "fallback", "wqy", "gothic", "simhei", "pingfang", "hiragino")


def show(stream: Stream, folder: Path, *, per_class: int = 8, side: int = 64, classes: int = 20) -> list[Path]:
    """One PNG per session, at most ``classes`` rows of ``per_class`` pictures; the files written."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for session in stream:
        path = folder / f"session_{session.number:02d}.png"
        sheet(session, per_class, side, classes).save(buffer := io.BytesIO(), "png")
        write_output(path, buffer.getvalue(), "png")
        written.append(path)
    return written


def sheet(session: Session, per_class: int, side: int, classes: int) -> Image.Image:
    where = positions(session.train.labels)
    rows = session.classes[:classes]
    step = side + MARGIN
    width = max(per_class * step + MARGIN, 240)
    image = Image.new("RGB", (width, LINE + MARGIN + len(rows) * (step + LINE)), "white")
    draw = ImageDraw.Draw(image)
    more = f", {len(rows)} shown" if len(rows) < len(session.classes) else ""
    count = counted(len(session.classes), "class", "classes")
    write(draw, 0, f"{session.number}: {session.name}", f" ({count}{more})", width)
    for row, label in enumerate(rows):
        top = LINE + MARGIN + row * (step + LINE)
        found = where.get(label, [])
        write(draw, top, str(label), f" ({len(found)})", width)
        for column, index in enumerate(found[:per_class]):
            small = ImageOps.contain(session.train.decode(index), (side, side))
            image.paste(small, (MARGIN + column * step, top + LINE))
    return image


def write(draw: ImageDraw.ImageDraw, top: int, name: str, tail: str, width: int) -> None:
    """Write a name, shortened to fit, and what follows it."""
    font, text = spelt(name)
    room = width - 2 * MARGIN
    if draw.textlength(text + tail, font) > room:
        while text and draw.textlength(f"{text}…{tail}", font) > room:
            text = text[:-1]
        text += "…"
    draw.text((MARGIN, top), text + tail, fill="black", font=font)


def spelt(name: str) -> tuple[ImageFont.FreeTypeFont, str]:
    """A font with all letters of ``name``; where there is none, letters that are missing become escapes."""
    name = " ".join(name.split())
    usual = font_folder() / "DejaVuSans.ttf"
    missing = set(name) - letters(usual)
    found = next((path for path in wide_fonts() if set(name) <= letters(path)), None) if missing else usual
    if found is None:
        name = "".join(c.encode("ascii", "backslashreplace").decode() if c in missing else c for c in name)
    return ImageFont.truetype(str(found or usual), POINTS), name


@cache
def wide_fonts() -> tuple[Path, ...]:
    files = (Path(file) for file in sorted(findSystemFonts()))
    return tuple(file for file in files if any(part in file.stem.lower().replace("-", "") for part in WIDE_FONTS))


@cache
def letters(path: Path) -> frozenset[str]:
    """The characters that a font draws."""
    try:
        return frozenset(map(chr, FT2Font(str(path)).get_charmap()))
    except (OSError, RuntimeError):  # a file that FreeType cannot read
        return frozenset()
