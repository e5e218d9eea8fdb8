"""The figures of accuracies: each function returns a matplotlib Figure, ready for ``savefig`` as PNG, PDF or SVG.

Figures are built without pyplot, so that drawing one changes no global state.
"""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from safecl.report.colours import HEAT, INK, ON_STRONG, ON_WEAK
from safecl.report.drawing import Size, dress, new_figure, percent_axis, session_axis, style
from safecl.report.series import Series


def accuracy_curves(series: Sequence[Series], size: Size = (7, 4), bare: bool = False) -> Figure:
    """Accuracy on everything seen, after each session: methods as thick lines, their parts as thin ones.

    The band around the mean over several seeds is one standard deviation wide on each side.
    """
    with style():
        figure, axes = new_figure(size)
        lowest = 1.0
        for one in sorted(series, key=lambda one: one.main):  # the main lines lie on top
            sessions, values = [t for t, _ in one.pooled], [value for _, value in one.pooled]
            band = one.band() if one.main else []
            lowest = min([lowest, *values, *(least for _, least, _ in band)])
            if band:
                places, least, most = zip(*band, strict=True)
                axes.fill_between(places, least, most, color=one.colour.light, alpha=0.16, linewidth=0)
            width, marker = (2.6, 6.5) if one.main else (1.2, 4.0)
            dashes = "-" if one.main else (0, (5, 2))
            axes.plot(
                sessions, values, color=one.colour.light, linewidth=width, linestyle=dashes,
                marker=one.colour.marker, markersize=marker, label=one.name, clip_on=False,
            )  # fmt: skip
        lowest = max(lowest, 0.0)
        sessions_total = max((one.run.total for one in series), default=1)
        percent_axis(axes, bottom=0.0 if lowest < 0.4 else math.floor(lowest * 10 - 1) / 10)
        session_axis(axes, sessions_total)
        axes.set_xlim(0.8, sessions_total + 0.2)
        axes.set_xlabel("sessions learned")
        if series and not bare:
            axes.legend(frameon=False)
        return figure


def session_bars(series: Sequence[Series], size: Size = (3.6, 2.6), bare: bool = False) -> Figure:
    """For each series a panel, for each session a bar: what is known of it at the end.

    The outline is what was known right after the session was learned, so the empty part is what was forgotten.
    Sessions that are still to come (domain-incremental streams measure them too) are hatched.
    """
    columns = min(3, len(series)) or 1
    lines = math.ceil(len(series) / columns) or 1
    with style():
        figure = Figure(figsize=(size[0] * columns, size[1] * lines), layout="constrained")
        for place, one in enumerate(series, start=1):
            axes = dress(figure.add_subplot(lines, columns, place))
            _bars(axes, one)
            if not bare:
                axes.set_title(one.name, color=INK)
        return figure


def matrix(series: Series, size: Size = (3.6, 3.4), bare: bool = False) -> Figure:
    """The matrix R: row t, column i is the accuracy on session i's test pictures after learning session t."""
    with style():
        figure, axes = new_figure(size)
        total = max([series.run.total, *(len(row) for row in series.rows.values())])
        for session, row in series.rows.items():
            for i, value in enumerate(row, start=1):
                if value is not None:
                    _cell(axes, i, session, value, annotate=total <= 10)
        axes.set(xlim=(0.5, total + 0.5), ylim=(total + 0.5, 0.5), aspect="equal")
        axes.grid(False)
        session_axis(axes, total)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=12, integer=True, min_n_ticks=1))
        axes.set(xlabel="tested on session", ylabel="after session")
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.tick_params(length=0)
        if not bare:
            axes.set_title(series.name, color=INK)
        return figure


def validation_curves(one: Series, size: Size = (3.6, 2.6), bare: bool = False) -> Figure:
    """Accuracy on the test pictures and on held-out training pictures, after each session."""
    with style():
        figure, axes = new_figure(size)
        for points, dashes, name in ((one.pooled, "-", "test"), (one.validation, (0, (2, 2)), "validation")):
            sessions, values = [t for t, _ in points], [value for _, value in points]
            axes.plot(
                sessions, values, color=one.colour.light, linestyle=dashes, linewidth=2, marker=one.colour.marker,
                markersize=5, label=name, clip_on=False,
            )  # fmt: skip
        lowest = min((value for _, value in (*one.pooled, *one.validation)), default=0.0)
        percent_axis(axes, bottom=0.0 if lowest < 0.4 else math.floor(lowest * 10 - 1) / 10)
        session_axis(axes, one.run.total)
        axes.set_xlabel("sessions learned")
        axes.legend(frameon=False, handlelength=3)
        if not bare:
            axes.set_title(one.name, color=INK)
        return figure


def _bars(axes: Axes, one: Series) -> None:
    last = one.rows.get(one.run.done, [])
    for i, value in enumerate(last, start=1):
        if value is None:
            continue
        learned = one.rows.get(i, [])
        peak = learned[i - 1] if len(learned) >= i else None
        if peak is None:
            axes.bar(i, value, width=0.72, facecolor="none", edgecolor=one.colour.light, hatch="////", alpha=0.5)
        else:
            axes.bar(i, peak, width=0.72, facecolor="none", edgecolor=one.colour.light, linewidth=1, alpha=0.75)
            axes.bar(i, value, width=0.72, color=one.colour.light)
        if len(last) <= 10:
            top = peak if peak is not None and value < peak < value + 0.12 else value  # never across the outline
            axes.annotate(
                f"{100 * value:.0f}", (i, top), xytext=(0, 2), textcoords="offset points",
                ha="center", va="bottom", fontsize=9,
            )  # fmt: skip
    percent_axis(axes)
    axes.set_ylim(0, 1.08)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    session_axis(axes, one.run.total)
    axes.grid(False, axis="x")
    axes.set_xlabel("classes of session" if one.run.facts.stream.protocol != "domain" else "domain")


def _cell(axes: Axes, column: int, row: int, value: float, annotate: bool) -> None:
    strength = 0.08 + 0.92 * min(max(value, 0.0), 1.0) ** 1.6  # steeper near the top, where good methods differ
    axes.add_patch(Rectangle((column - 0.47, row - 0.47), 0.94, 0.94, facecolor=HEAT, alpha=strength, linewidth=0))
    if annotate:
        colour = ON_STRONG if strength > 0.68 else ON_WEAK
        axes.text(column, row, f"{100 * value:.0f}", ha="center", va="center", color=colour, fontsize=10)
