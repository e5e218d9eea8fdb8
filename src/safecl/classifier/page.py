"""An HTML page about a model, drawn from the header of its file alone."""

from html import escape
from pathlib import Path
from typing import Any

from safecl.atomic import write_bytes
from safecl.classifier.history import class_rows, counts, history_rows
from safecl.classifier.store import Header, ModelFile
from safecl.lines import counted

BINS = 15  # of the calibration error; see calibrate.py, which imports torch
STYLE = """
:root { color-scheme: light dark; --ink: #222; --paper: #fff; --faint: #ddd; --soft: #667; --bar: #4477aa; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ddd; --paper: #161616; --faint: #444; --soft: #99a; --bar: #77aadd; } }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em; color: var(--ink);
  background: var(--paper); overflow-wrap: anywhere; }
h2 { margin-top: 2em; } figure { margin: 1em 0; max-width: 30em; } figcaption { color: var(--soft); font-size: 14px; }
.wide { overflow-x: auto; overflow-wrap: normal; } table { border-collapse: collapse; margin: 1em 0; }
th, td { padding: .2em 1em .2em 0; text-align: left; vertical-align: top; }
td.n, th.n { text-align: right; } tr + tr { border-top: 1px solid var(--faint); }
svg { width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: var(--ink); }
svg .count { font-size: 10px; stroke: var(--paper); stroke-width: 2px; paint-order: stroke; }
svg .bar { fill: var(--bar); }
svg .grid { stroke: var(--faint); } svg .even { stroke: var(--ink); stroke-dasharray: 4 3; }
"""


def write_page(file: ModelFile, path: Path, measured: dict[str, Any] | None = None) -> Path:
    """Write the page of a model; ``measured``: what ``evaluate`` gave, if anything was measured."""
    header = file.header
    calibration, pictures = header.get("calibration"), sum(counts(header).values())
    learned = f" learned from {counted(pictures, 'picture')}" if pictures else ""
    parts = [
        f"<h1>{escape(file.path.name)}</h1>",
        f"<p>{counted(len(header['classes']), 'class', 'classes')}{learned} · "
        f"{escape(header['settings']['method']['name'])} on {escape(header['backbone']['name'])} at "
        f"{header['backbone']['size']} px · {file.path.stat().st_size / 1e6:.1f} MB</p>",
    ]
    if measured is not None:
        parts += ["<h2>Measured</h2>", _measured(measured)]
        if measured["bins"]:
            parts += [reliability(measured["bins"], "the pictures that were measured")]
    if calibration:
        parts += [
            "<h2>How honest the probabilities are</h2>",
            f"<p>On {counted(calibration['pictures'], 'picture')} that the model has learned, each answered as if it "
            f"had been left out: {_percent(calibration['accuracy'])} right, calibration error "
            f"{calibration['error']:.3f}.</p>",
            reliability(calibration["bins"], "pictures that are left out in turn"),
        ]
    parts += ["<h2>Classes</h2>", _table(("class", "learned in", "pictures"), class_rows(header))]
    parts += ["<h2>History</h2>", _history(header)]
    title = escape(file.path.name)
    text = (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>"
        f"<meta name=viewport content='width=device-width'><style>{STYLE}</style>{''.join(parts)}</html>"
    )
    write_bytes(path, text.encode())
    return path


def reliability(bins: list[Any], what: str) -> str:
    """The accuracy in each bin of confidence, beside the diagonal where the two are equal; an SVG with a caption."""
    side, left, top, wide = 300, 62, 18, 300 / BINS
    bottom, parts = top + side, []
    for share in (0, 0.25, 0.5, 0.75, 1):
        x, y = left + share * side, bottom - share * side
        parts += [
            f"<line class='grid' x1='{left}' y1='{y}' x2='{left + side}' y2='{y}'/>",
            f"<text x='{left - 6}' y='{y + 4}' text-anchor='end'>{100 * share:.0f} %</text>",
            f"<text x='{x}' y='{bottom + 17}' text-anchor='middle'>{100 * share:.0f} %</text>",
        ]
    numbers = []
    for confidence, accuracy, count in bins:
        x, h = left + min(int(confidence * BINS), BINS - 1) * wide, accuracy * side
        said = f"{counted(count, 'picture')}: {100 * confidence:.0f} % sure, {100 * accuracy:.0f} % right"
        parts.append(
            f"<rect class='bar' x='{x + 1:.1f}' y='{bottom - h:.1f}' width='{wide - 2:.1f}' height='{h:.1f}'>"
            f"<title>{said}</title></rect>"
        )
        numbers.append(
            f"<text class='count' x='{x + wide / 2:.1f}' y='{bottom - h - 4:.1f}' text-anchor='middle'>{count}</text>"
        )
    middle = left + side / 2
    parts += [
        f"<line class='even' x1='{left}' y1='{bottom}' x2='{left + side}' y2='{top}'/>",
        f"<text x='{middle}' y='{bottom + 36}' text-anchor='middle'>how sure the model is</text>",
        f"<text transform='translate(14 {top + side / 2}) rotate(-90)' text-anchor='middle'>how often it is right"
        "</text>",
        *numbers,
    ]
    return (
        f"<figure><svg viewBox='0 0 {left + side + 28} {bottom + 44}' role='img' "
        f"aria-label='How often the model is right against how sure it is, on {escape(what)}'>{''.join(parts)}</svg>"
        f"<figcaption>On {escape(what)}. Each bar stands for answers of about the same certainty, the number above it "
        "says how many. A bar that ends at the dashed line is honest: of answers with 80 %, 80 % are right. Below "
        "the line the model is too sure, above it not sure enough; bars of a few pictures say little.</figcaption>"
        "</figure>"
    )


def _history(header: Header) -> str:
    heads = ("", "what", "name", "date", "pictures", "new classes", "seconds", "accuracy, %")
    return _table(heads, history_rows(header), first_number=4)


def _measured(measured: dict[str, Any]) -> str:
    rows = [
        ["pictures of known classes", f"{measured['pictures']:,}"],
        ["answered rightly", _percent(measured["accuracy"])],
        ["calibration error", "–" if measured["error"] is None else f"{measured['error']:.3f}"],
        ["known pictures called unknown", _percent(measured["false_alarms"])],
        ["pictures of unknown classes", f"{measured['unknown_pictures']:,}"],
        ["of these called unknown", _percent(measured["found"])],
    ]
    return _table(("", ""), rows)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _table(heads: tuple[str, ...], rows: list[list[str]], first_number: int | None = None) -> str:
    """``first_number``: the column from which on numbers stand; the last one if not given."""
    numbers = len(heads) - 1 if first_number is None else first_number

    def cell(tag: str, i: int, text: str) -> str:
        return f"<{tag}{' class=n' if i >= numbers else ''}>{escape(text)}</{tag}>"

    head = "".join(cell("th", i, text) for i, text in enumerate(heads))
    head = f"<tr>{head}</tr>" if any(heads) else ""
    body = "".join("<tr>" + "".join(cell("td", i, t) for i, t in enumerate(row)) + "</tr>" for row in rows)
    return f"<div class=wide><table>{head}{body}</table></div>"
