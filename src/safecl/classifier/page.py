"""An HTML page about a model, drawn from the header of its file alone."""

from html import escape
from pathlib import Path
from typing import Any

from safecl.atomic import write_bytes
from safecl.classifier.store import ModelFile

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: 1em 0; } th, td { padding: .2em 1em .2em 0; text-align: left; }
td.n, th.n { text-align: right; } tr + tr { border-top: 1px solid #ddd; } h2 { margin-top: 2em; }
@media (prefers-color-scheme: dark) { body { background: #161616; color: #ddd; } tr + tr { border-color: #444; } }
"""


def write_page(file: ModelFile, path: Path, measured: dict[str, Any] | None = None) -> Path:
    """Write the page of a model; ``measured``: what ``evaluate`` gave, if anything was measured."""
    header = file.header
    calibration = header.get("calibration")
    parts = [
        f"<h1>{escape(file.path.name)}</h1>",
        f"<p>{len(header['classes'])} classes · {escape(header['settings']['method']['name'])} on "
        f"{escape(header['backbone']['name'])} at {header['backbone']['size']} px · "
        f"{file.path.stat().st_size / 1e6:.1f} MB</p>",
    ]
    if measured is not None:
        parts += ["<h2>Measured</h2>", _measured(measured)]
        if measured["bins"]:
            parts += [reliability(measured["bins"], "on the pictures that were measured")]
    if calibration:
        parts += [
            "<h2>How honest the probabilities are</h2>",
            f"<p>On {calibration['pictures']} pictures that were learned, each left out in turn: "
            f"{_percent(calibration['accuracy'])} right, calibration error {calibration['error']:.3f}.</p>",
            reliability(calibration["bins"], "left out in turn"),
        ]
    parts += ["<h2>Classes</h2>", _table(("class", "learned in", "pictures"), classes(header))]
    parts += ["<h2>History</h2>", _table(("what", "name", "date", "pictures", "accuracy"), history(header))]
    title = escape(file.path.name)
    text = (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>"
        f"<meta name=viewport content='width=device-width'><style>{STYLE}</style>{''.join(parts)}</html>"
    )
    write_bytes(path, text.encode())
    return path


def reliability(bins: list[Any], what: str) -> str:
    """The accuracy in each bin of confidence, beside the diagonal where the two are equal; an SVG."""
    side, pad = 240, 30
    bars = []
    for confidence, accuracy, count in bins:
        x, h = pad + confidence * side, accuracy * side
        bars.append(
            f"<rect x='{x - 6:.1f}' y='{pad + side - h:.1f}' width='12' height='{h:.1f}' fill='#4477aa'>"
            f"<title>{count} pictures: {confidence:.0%} sure, {accuracy:.0%} right</title></rect>"
        )
    return (
        f"<svg width='{side + 2 * pad}' height='{side + 2 * pad}' role='img' aria-label='reliability, {escape(what)}'>"
        f"{''.join(bars)}<line x1='{pad}' y1='{pad + side}' x2='{pad + side}' y2='{pad}' stroke='#888'/>"
        f"<text x='{pad}' y='{side + 2 * pad - 8}' fill='currentColor' font-size='12'>how sure → ; height: how often "
        f"right</text></svg>"
    )


def classes(header: dict[str, Any]) -> list[list[str]]:
    found: dict[Any, list[Any]] = {label: ["–", 0] for label in header["classes"]}
    for entry in header["history"]:
        for label, count in entry["classes"]:
            if label in found:
                found[label][0] = entry["name"] if found[label][0] == "–" else found[label][0]
                found[label][1] += count
    return [[str(label), str(session), f"{count:,}"] for label, (session, count) in found.items()]


def history(header: dict[str, Any]) -> list[list[str]]:
    return [
        [entry["what"], str(entry["name"]), entry["date"][:16].replace("T", " "), f"{entry.get('pictures', 0):,}",
         _percent(entry.get("accuracy"))]
        for entry in header["history"]
    ]  # fmt: skip


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


def _table(heads: tuple[str, ...], rows: list[list[str]]) -> str:
    def cell(tag: str, i: int, text: str) -> str:
        return f"<{tag}{' class=n' if i and i == len(heads) - 1 else ''}>{escape(text)}</{tag}>"

    head = "".join(cell("th", i, text) for i, text in enumerate(heads))
    body = "".join("<tr>" + "".join(cell("td", i, t) for i, t in enumerate(row)) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
