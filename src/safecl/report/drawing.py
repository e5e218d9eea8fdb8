"""What all figures share: quiet axes, scales, and colours that the page can exchange for its dark ones."""

import io
from contextlib import AbstractContextManager

import matplotlib as mpl
from matplotlib import style as mpl_style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from safecl.report.series import COLOURS, SPARE, Colour

INK, GRID = "#2b3440", "#dde2e8"
HEAT, ON_STRONG, ON_WEAK = "#08427f", "#fdfefe", "#0e131a"  # a cell, and the text on a strong or a weak one
PALETTE = (*COLOURS.values(), *SPARE)  # for classes, terms and phases
Size = tuple[float, float]
DPI = 200  # of a figure that is a PNG file


def paired(names: list[str]) -> dict[str, Colour]:
    """A colour for each name: its own where it has one, else one that no other name here has, as far as they reach."""
    own = {name: COLOURS[name] for name in names if name in COLOURS}
    others = [colour for colour in PALETTE if colour not in own.values()] or list(PALETTE)
    rest = [name for name in names if name not in own]
    spare = {name: others[i % len(others)] for i, name in enumerate(rest)}
    return {name: own.get(name) or spare[name] for name in names}


def style() -> AbstractContextManager[None]:
    """Settings that matplotlib reads while a figure is built; the user's matplotlibrc has no say."""
    ours = {
        "font.size": 11,
        "text.parse_math": False,  # a folder named "$5" is no formula
        "text.color": INK,
        "axes.labelcolor": INK,
    }
    return mpl_style.context(["default", ours])


def new_figure(size: Size) -> tuple[Figure, Axes]:
    figure = Figure(figsize=size, layout="constrained")
    return figure, dress(figure.add_subplot())


def dress(axes: Axes) -> Axes:
    """Quiet axes: no box, a pale grid behind the data. The background is left to the page."""
    axes.figure.patch.set_visible(False)
    axes.patch.set_visible(False)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
    axes.tick_params(color=GRID, labelcolor=INK, length=0)
    axes.grid(True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    return axes


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
        figure.savefig(buffer, format=kind, dpi=DPI, metadata={"Date": None} if kind == "svg" else {})
    return buffer.getvalue()
