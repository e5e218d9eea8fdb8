"""What all figures share: quiet axes, scales, and how they become files or parts of a page."""

import hashlib
import io
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape

import matplotlib as mpl
from markupsafe import Markup
from matplotlib import style as mpl_style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from safecl.report.colours import DARK, GRID, INK, variable

Size = tuple[float, float]
DPI = 200  # of a figure that is a PNG file
DECIMALS = re.compile(r"(\.\d\d)\d+")  # two are enough for a place on a screen


@contextmanager
def canvas(size: Size, panes: int = 1, across: int = 1) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure of ``panes`` quiet axes: no box, a pale grid behind the data, the background left to
    the page.

    It is built without pyplot and changes no global state; the user's matplotlibrc has no say.
    """
    ours = {"font.size": 11, "text.color": INK, "axes.labelcolor": INK, "axes.titlecolor": INK}
    ours |= {"legend.frameon": False, "text.parse_math": False}  # a folder named "$5" is no formula
    with mpl_style.context(["default", ours]):
        figure = Figure(figsize=size, layout="constrained")
        figure.patch.set_visible(False)
        down = math.ceil(panes / across)
        every = [figure.add_subplot(down, across, place) for place in range(1, panes + 1)]
        for axes in every:
            axes.patch.set_visible(False)
            axes.spines[["top", "right", "left"]].set_visible(False)
            axes.spines["bottom"].set_color(GRID)
            axes.tick_params(color=GRID, labelcolor=INK, length=0)
            axes.grid(True, color=GRID, linewidth=0.8)
            axes.set_axisbelow(True)
        yield figure, every


def percent_axis(axes: Axes, bottom: float = 0.0) -> None:
    axes.set_ylim(bottom, 1.0)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))


def session_axis(axes: Axes, total: int) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(nbins=12, integer=True, min_n_ticks=1))
    axes.set_xlim(0.4, total + 0.6)


def saved(figure: Figure, kind: str) -> bytes:
    """A figure as an SVG or PNG file on white; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    figure.patch.set(visible=True, facecolor="white")
    with mpl.rc_context({"svg.hashsalt": "safecl"}):
        figure.savefig(
            buffer, format=kind, dpi=DPI, metadata={"Date": None} if kind == "svg" else {}
        )
    return buffer.getvalue()


def inline_svg(figure: Figure, label: str, key: str) -> Markup:
    """The figure as an ``<svg>`` element; ``label`` says it in words, ``key`` keeps its ids apart
    from others'.
    """
    prefix = f"f{hashlib.blake2s(key.encode(), digest_size=6).hexdigest()}"
    buffer = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": prefix}):
        figure.savefig(
            buffer,
            format="svg",
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    text = buffer.getvalue()
    body = text[text.index(">", text.index("<svg")) + 1 :]
    body = re.sub(
        r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", body, flags=re.DOTALL
    )
    body = re.sub(r'\bid="', f'id="{prefix}-', body)
    body = re.sub(r'(xlink:href="|url\()#', rf"\g<1>#{prefix}-", body).replace("xlink:href", "href")
    for light in DARK:
        body = body.replace(light, f"var({variable(light)})")
    width, height = (round(72 * inches, 2) for inches in figure.get_size_inches())
    body = re.sub(r"<[^>]*>", lambda tag: DECIMALS.sub(r"\1", tag[0]), re.sub(r"\n\s*", "\n", body))
    # Every user text went through matplotlib's own XML escaping; the label is escaped here.
    return Markup(
        f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 {width} {height}">{body}'
    )
