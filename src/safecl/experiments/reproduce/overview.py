"""A drawing of the method: what is trained when, by which loss, and how both learners answer."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from safecl.report.colours import COLOURS, GRID, INK
from safecl.report.drawing import style

FROZEN, SLOW, FAST, BOTH = "#68707d", COLOURS["slow"].light, COLOURS["fast"].light, COLOURS["safe"].light
PANELS = ("Session 1", "Sessions t > 1", "Prediction")
WIDTH = 4.2  # of a panel
Point = tuple[float, float]


def overview() -> Figure:
    """Three panels: session 1, later sessions, prediction. Dashed boxes are frozen."""
    with style():
        figure = Figure(figsize=(13.2, 5.6), layout="constrained")
        axes = figure.add_subplot()
        axes.set(xlim=(0, 3 * WIDTH), ylim=(0, 5.4), aspect="equal")
        axes.axis("off")
        for number, title in enumerate(PANELS):
            left = number * WIDTH
            axes.text(left + WIDTH / 2, 5.15, title, ha="center", va="center", fontsize=14, weight="bold")
            if number:
                axes.plot([left, left], [0.1, 5.3], color=GRID, linewidth=1.2)
        _first(axes, 0.0)
        _later(axes, WIDTH)
        _prediction(axes, 2 * WIDTH)
        axes.text(0.25, 4.85, "dashed: frozen", va="center", color=FROZEN, fontsize=9)
        return figure


def _first(axes: Axes, x: float) -> None:
    _box(axes, x + 0.25, 0.2, 3.7, 0.5, "pictures of the first classes", INK)
    _box(axes, x + 0.25, 1.2, 1.6, 0.9, "backbone\n(PTM)", FROZEN, frozen=True)
    _box(axes, x + 2.35, 1.2, 1.6, 0.9, "backbone\n+ slow PET", SLOW)
    _box(axes, x + 2.35, 3.9, 1.6, 0.7, "head W_slow", SLOW)
    _arrow(axes, (x + 1.05, 0.7), (x + 1.05, 1.2))
    _arrow(axes, (x + 3.15, 0.7), (x + 3.15, 1.2))
    _arrow(axes, (x + 3.15, 2.1), (x + 3.15, 3.9))
    _arrow(axes, (x + 1.05, 2.1), (x + 1.05, 2.65))
    _arrow(axes, (x + 3.15, 2.9), (x + 2.2, 2.9))
    _box(axes, x + 0.25, 2.65, 1.95, 0.6, "correlation of features\nλ_diag L_diag + λ_rdn L_rdn", SLOW, small=True)
    axes.text(x + 1.05, 4.25, "L_cls\n(labels)", ha="center", va="center", color=SLOW, fontsize=10)
    _arrow(axes, (x + 1.45, 4.25), (x + 2.35, 4.25), SLOW)


def _later(axes: Axes, x: float) -> None:
    _box(axes, x + 0.25, 0.2, 3.7, 0.5, "pictures of new classes", INK)
    _box(axes, x + 0.25, 1.2, 1.6, 0.9, "slow learner", SLOW, frozen=True)
    _box(axes, x + 2.35, 1.2, 1.6, 0.9, "backbone\n+ fast PET", FAST)
    _box(axes, x + 0.25, 3.9, 1.6, 0.7, "W_slow grows\nby centroids", SLOW, frozen=True, small=True)
    _box(axes, x + 2.35, 3.9, 1.6, 0.7, "head W_fast\n(L_cls)", FAST, small=True)
    for left in (1.05, 3.15):
        _arrow(axes, (x + left, 0.7), (x + left, 1.2))
        _arrow(axes, (x + left, 2.1), (x + left, 3.9))
    _both_ways(axes, (x + 1.15, 2.45), (x + 3.05, 2.45), "features: λ_cos L_cos")
    _both_ways(axes, (x + 1.15, 3.3), (x + 3.05, 3.3), "each learner's features in the\nother's head: L_s↔f")


def _prediction(axes: Axes, x: float) -> None:
    _box(axes, x + 0.25, 0.2, 3.7, 0.5, "a picture", INK)
    for left, name, colour in ((0.25, "slow learner", SLOW), (2.35, "fast learner", FAST)):
        _box(axes, x + left, 1.05, 1.6, 0.6, name, colour, frozen=True)
        _box(axes, x + left, 2.15, 1.6, 0.8, "random features,\nridge head", colour, small=True)
        _arrow(axes, (x + left + 0.8, 0.7), (x + left + 0.8, 1.05))
        _arrow(axes, (x + left + 0.8, 1.65), (x + left + 0.8, 2.15))
        _arrow(axes, (x + left + 0.8, 2.95), (x + (1.6 if left < 1 else 2.6), 3.55))
    _box(axes, x + 0.6, 3.55, 3.0, 0.65, "weights by entropy\nsoftmax(−γ H)", BOTH, small=True)
    _arrow(axes, (x + 2.1, 4.2), (x + 2.1, 4.55))
    axes.text(x + 2.1, 4.7, "answer", ha="center", va="center", color=BOTH, fontsize=12, weight="bold")


def _box(
    axes: Axes, x: float, y: float, width: float, height: float, text: str, colour: str, frozen: bool = False,
    small: bool = False,
) -> None:  # fmt: skip
    axes.add_patch(
        FancyBboxPatch(
            (x, y), width, height, boxstyle="round,pad=0,rounding_size=0.1", linewidth=1.8, edgecolor=colour,
            facecolor=colour + "14", linestyle=(0, (4, 2)) if frozen else "-",
        )
    )  # fmt: skip
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=9 if small else 11, color=INK)


def _arrow(axes: Axes, start: Point, end: Point, colour: str = INK) -> None:
    axes.add_patch(
        FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=11, color=colour, linewidth=1.2,
                        shrinkA=0, shrinkB=0)
    )  # fmt: skip


def _both_ways(axes: Axes, start: Point, end: Point, text: str) -> None:
    axes.add_patch(FancyArrowPatch(start, end, arrowstyle="<|-|>", mutation_scale=11, color=FAST, linewidth=1.2))
    axes.text((start[0] + end[0]) / 2, start[1] + 0.08, text, ha="center", va="bottom", fontsize=8.5, color=FAST)
