"""A matplotlib figure as SVG inside an HTML page, in colours that follow the page's light or dark theme."""

import io
import re
from html import escape

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.figure import Figure

from safecl.report.drawing import GRID, HEAT, INK, ON_STRONG, ON_WEAK
from safecl.report.series import COLOURS, SPARE

# A figure's colours are those of the light page; each becomes a CSS variable that the dark page sets anew.
DARK = {
    INK: "#d7dde5",
    GRID: "#333b46",
    HEAT: "#6cb6f5",
    ON_STRONG: "#0c131b",
    ON_WEAK: "#f2f5f8",
    **{colour.light: colour.dark for colour in (*COLOURS.values(), *SPARE)},
}

DECIMALS = re.compile(r"(\.\d\d)\d+")  # two are enough for a place on a screen


def variable(light: str) -> str:
    """The CSS variable of a figure colour: ``--f-0068b0``."""
    return f"--f-{light[1:]}"


def theme() -> str:
    """The CSS declarations of all figure colours."""
    return " ".join(f"{variable(light)}: light-dark({light}, {dark});" for light, dark in DARK.items())


def inline_svg(figure: Figure, label: str, prefix: str) -> Markup:
    """The figure as an ``<svg>`` element; ``label`` says it in words, ``prefix`` keeps its ids apart from others'."""
    buffer = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": prefix}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = buffer.getvalue()
    body = text[text.index(">", text.index("<svg")) + 1 :]
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{prefix}-', body)
    body = re.sub(r'(xlink:href="|url\()#', rf"\g<1>#{prefix}-", body).replace("xlink:href", "href")
    for light in DARK:
        body = body.replace(light, f"var({variable(light)})")
    width, height = (round(72 * inches, 2) for inches in figure.get_size_inches())
    body = re.sub(r"<[^>]*>", lambda tag: DECIMALS.sub(r"\1", tag[0]), re.sub(r"\n\s*", "\n", body))
    # Every user text went through matplotlib's own XML escaping; the label is escaped here.
    opening = f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 {width} {height}">'
    return Markup(opening + body)
