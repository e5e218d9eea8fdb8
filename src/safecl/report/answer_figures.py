"""The figures of single answers: confusions, aggregation weights, maps of features."""

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, PercentFormatter

from safecl.report.answers import Confusion, Map, Weight
from safecl.report.colours import COLOURS, GRID, HEAT, INK, ON_STRONG, ON_WEAK, paired
from safecl.report.drawing import Size, new_figure, percent_axis, style
from safecl.report.series import display
from safecl.report.words import short

NAME = 14  # characters of a class's name on an axis


def confusion_matrix(found: Confusion, size: Size = (5.2, 5.0)) -> Figure:
    """Rows: the class of a picture; columns: what it was answered with. Right answers are outlined."""
    with style():
        figure, axes = new_figure(size)
        count = len(found.labels)
        tested = [sum(row) + other for row, other in zip(found.counts, found.elsewhere, strict=True)]
        for i, row in enumerate(found.counts):
            for j, times in enumerate(row):
                strength = 0.06 + 0.94 * (times / tested[i]) ** 0.7 if times else 0.03
                corner, side = (j - 0.46, i - 0.46), 0.92
                axes.add_patch(Rectangle(corner, side, side, facecolor=HEAT, alpha=strength, linewidth=0))
                if i == j:
                    axes.add_patch(Rectangle(corner, side, side, facecolor="none", edgecolor=HEAT, linewidth=1))
                if times:
                    colour = ON_STRONG if strength > 0.6 else ON_WEAK
                    axes.text(j, i, str(times), ha="center", va="center", fontsize=10, color=colour)
        names = [short(label, NAME) for label in found.labels]
        axes.set(xlim=(-0.5, count - 0.5), ylim=(count - 0.5, -0.5), aspect="equal")
        axes.set_xticks(range(count), names, rotation=90 if max(map(len, names)) > 3 else 0)
        axes.set_yticks(range(count), names)
        axes.set(xlabel="answered with", ylabel="picture of")
        axes.grid(False)
        axes.spines["bottom"].set_visible(False)
        return figure


def weight_bars(found: Sequence[Weight], size: Size = (7, 2.8)) -> Figure:
    """The mean weight of the fast learner by class, in the order of learning, from one half up or down.

    The vertical lines part the sessions.
    """
    with style():
        figure, axes = new_figure(size)
        slow, fast = COLOURS["slow"].light, COLOURS["fast"].light
        shares = [one.weights.get("fast", 0.5) for one in found]
        colours = [fast if share > 0.5 else slow for share in shares]
        axes.bar(range(len(found)), [share - 0.5 for share in shares], bottom=0.5, width=0.8, color=colours)
        previous = None
        for i, one in enumerate(found):
            if one.session != previous:
                axes.axvline(i - 0.5, color=GRID, linewidth=1)
                axes.annotate(
                    str(one.session), (i - 0.5, 1), xycoords=("data", "axes fraction"), xytext=(3, -2),
                    textcoords="offset points", va="top", color=INK, fontsize=9,
                )  # fmt: skip
                previous = one.session
        axes.axhline(0.5, color=INK, linewidth=1)
        furthest = max((abs(share - 0.5) for share in shares), default=0.0)
        percent_axis(axes)
        axes.set_ylim(0.5 - max(1.25 * furthest, 0.02), 0.5 + max(1.25 * furthest, 0.02))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0 if furthest > 0.04 else 1, symbol=" %"))
        axes.set_xlim(-0.5, max(len(found), 1) - 0.5)
        axes.set_ylabel("weight of the fast learner")
        if 0 < len(found) <= 30:
            names = [short(one.label, NAME) for one in found]
            axes.set_xticks(range(len(found)), names, rotation=90 if max(map(len, names)) > 2 else 0)
        else:
            axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))
            axes.set_xlabel("classes in the order of learning")
        axes.grid(False, axis="x")
        return figure


def feature_map(found: Map, labels: Sequence[str], size: Size = (4.8, 3.4), bare: bool = False) -> Figure:
    """A point for each test picture, a colour and a marker for each class."""
    with style():
        figure, axes = new_figure(size)
        for name, colour in paired(list(dict.fromkeys(labels))).items():
            mine = found.points[[label == name for label in labels]]
            axes.scatter(
                mine[:, 0], mine[:, 1], s=30, color=colour.light, marker=colour.marker, linewidth=0, alpha=0.85,
                label=short(name, NAME),
            )  # fmt: skip
        axes.set(xticks=[], yticks=[])
        for spine in axes.spines.values():
            spine.set_visible(True)
            spine.set_color(GRID)
        if not bare:
            axes.set_title(display(found.network), color=INK)
            axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9)
        return figure
