"""A contact sheet of each session: one row of training pictures a class."""

from pathlib import Path

from PIL import Image, ImageDraw, ImageOps

from safecl.streams.stream import Session, Stream, positions

MARGIN, LINE = 4, 14


def show(stream: Stream, folder: Path, *, per_class: int = 8, side: int = 64, classes: int = 20) -> list[Path]:
    """One PNG a session, at most ``classes`` rows of ``per_class`` pictures; the files written."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for session in stream:
        path = folder / f"session_{session.number:02d}.png"
        sheet(session, per_class, side, classes).save(path)
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
    draw.text((MARGIN, 2), f"{session.number}: {session.name} ({len(session.classes)} classes{more})", fill="black")
    for row, label in enumerate(rows):
        top = LINE + MARGIN + row * (step + LINE)
        found = where.get(label, [])
        draw.text((MARGIN, top), f"{label} ({len(found)})", fill="black")
        for column, index in enumerate(found[:per_class]):
            small = ImageOps.contain(session.train.decode(index), (side, side))
            image.paste(small, (MARGIN + column * step, top + LINE))
    return image
