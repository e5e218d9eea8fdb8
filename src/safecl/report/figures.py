"""The figures of a report: each function returns a matplotlib Figure, ready for ``savefig`` as PNG, PDF or SVG.

Figures are built without pyplot, so that drawing one changes no global state.
"""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, PercentFormatter

from safecl.report.runs import Loss, Run
from safecl.report.series import COLOURS, SPARE, Colour, Series

INK, GRID = "#2b3440", "#dde2e8"
HEAT, ON_STRONG, ON_WEAK = "#08427f", "#fdfefe", "#0e131a"  # a cell, and the text on a strong or a weak one
MAX_POINTS = 300  # of a loss curve: more cannot be seen, and would be written out one by one
Size = tuple[float, float]


def accuracy_curves(series: Sequence[Series], size: Size = (7, 4), legend: bool = True) -> Figure:
    """Accuracy on everything seen, after each session: methods as thick lines, their parts as thin ones."""
    with _style():
        figure, axes = _figure(size)
        lowest = 1.0
        for one in sorted(series, key=lambda one: one.main):  # the main lines lie on top
            sessions, values = [t for t, _ in one.pooled], [value for _, value in one.pooled]
            lowest = min([lowest, *values])
            width, marker = (2.6, 6.5) if one.main else (1.2, 4.0)
            dashes = "-" if one.main else (0, (5, 2))
            axes.plot(
                sessions, values, color=one.colour.light, linewidth=width, linestyle=dashes,
                marker=one.colour.marker, markersize=marker, label=one.name, clip_on=False,
            )  # fmt: skip
        sessions_total = max((one.run.total for one in series), default=1)
        _percent_axis(axes, bottom=0.0 if lowest < 0.4 else math.floor(lowest * 10 - 1) / 10)
        _session_axis(axes, sessions_total)
        axes.set_xlim(0.8, sessions_total + 0.2)
        axes.set_xlabel("sessions learned")
        if legend and series:
            axes.legend(frameon=False)
        return figure


def session_bars(series: Sequence[Series], size: Size = (3.6, 2.6), titles: bool = True) -> Figure:
    """For each series a panel, for each session a bar: what is known of it at the end.

    The outline is what was known right after the session was learned, so the empty part is what was forgotten.
    Sessions that are still to come (domain-incremental streams measure them too) are hatched.
    """
    columns = min(3, len(series)) or 1
    lines = math.ceil(len(series) / columns) or 1
    with _style():
        figure = Figure(figsize=(size[0] * columns, size[1] * lines), layout="constrained")
        for place, one in enumerate(series, start=1):
            axes = _dress(figure.add_subplot(lines, columns, place))
            _bars(axes, one)
            if titles:
                axes.set_title(one.name, color=INK)
        return figure


def matrix(series: Series, size: Size = (3.6, 3.4), title: bool = True) -> Figure:
    """The matrix R: row t, column i is the accuracy on session i's test pictures after learning session t."""
    with _style():
        figure, axes = _figure(size)
        total = max([series.run.total, *(len(row) for row in series.rows.values())])
        for session, row in series.rows.items():
            for i, value in enumerate(row, start=1):
                if value is not None:
                    _cell(axes, i, session, value, annotate=total <= 10)
        axes.set(xlim=(0.5, total + 0.5), ylim=(total + 0.5, 0.5), aspect="equal")
        axes.grid(False)
        _session_axis(axes, total)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=12, integer=True, min_n_ticks=1))
        axes.set(xlabel="tested on session", ylabel="after session")
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.tick_params(length=0)
        if title:
            axes.set_title(series.name, color=INK)
        return figure


def loss_curves(run: Run, size: Size = (7, 3.2), legend: bool = True) -> Figure:
    """The training loss over all steps of a run, one colour for each phase; the vertical lines start a session."""
    with _style():
        figure, axes = _figure(size)
        offset, named, session = 0, set[str](), 0
        for part in run.loss_parts():
            if part[0].session != session:
                session = part[0].session
                axes.axvline(offset, color=GRID, linewidth=1)
                axes.annotate(
                    str(session), (offset, 1), xycoords=("data", "axes fraction"), xytext=(3, -2),
                    textcoords="offset points", va="top", color=INK, fontsize=9,
                )  # fmt: skip
            phase = kind_of_phase(part[0].phase)
            _loss_line(axes, part, offset, phase_colour(run, phase), None if phase in named else phase)
            named.add(phase)
            offset += max(line.step for line in part) + 1
        axes.set(xlabel="steps", ylabel="loss")
        axes.margins(x=0.01)
        axes.grid(False, axis="x")
        if legend and named:
            axes.legend(frameon=False)
        return figure


def kind_of_phase(phase: str) -> str:
    """``pilot`` for ``pilot2``: phases of a kind have one name and one colour."""
    return phase.rstrip("0123456789")


def phase_colour(run: Run, phase: str) -> Colour:
    """A phase that trains an output has its colour; any other, the method's."""
    return COLOURS.get(phase) or COLOURS.get(run.facts.method, SPARE[0])


def _style() -> AbstractContextManager[None]:
    """Settings that matplotlib reads while a figure is built; the user's matplotlibrc has no say."""
    ours = {
        "font.size": 11,
        "text.parse_math": False,  # a folder named "$5" is no formula
        "text.color": INK,
        "axes.labelcolor": INK,
    }
    return style.context(["default", ours])


def _figure(size: Size) -> tuple[Figure, Axes]:
    figure = Figure(figsize=size, layout="constrained")
    return figure, _dress(figure.add_subplot())


def _dress(axes: Axes) -> Axes:
    """Quiet axes: no box, a pale grid behind the data. The background is left to the page."""
    axes.figure.patch.set_visible(False)
    axes.patch.set_visible(False)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
    axes.tick_params(color=GRID, labelcolor=INK, length=0)
    axes.grid(True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    return axes


def _percent_axis(axes: Axes, bottom: float = 0.0) -> None:
    axes.set_ylim(bottom, 1.0)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))


def _session_axis(axes: Axes, total: int) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(nbins=12, integer=True, min_n_ticks=1))
    axes.set_xlim(0.4, total + 0.6)


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
    _percent_axis(axes)
    axes.set_ylim(0, 1.08)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    _session_axis(axes, one.run.total)
    axes.grid(False, axis="x")
    axes.set_xlabel("classes of session" if one.run.facts.stream.protocol != "domain" else "domain")


def _cell(axes: Axes, column: int, row: int, value: float, annotate: bool) -> None:
    strength = 0.08 + 0.92 * min(max(value, 0.0), 1.0) ** 1.6  # steeper near the top, where good methods differ
    axes.add_patch(Rectangle((column - 0.47, row - 0.47), 0.94, 0.94, facecolor=HEAT, alpha=strength, linewidth=0))
    if annotate:
        colour = ON_STRONG if strength > 0.68 else ON_WEAK
        axes.text(column, row, f"{100 * value:.0f}", ha="center", va="center", color=colour, fontsize=10)


def _loss_line(axes: Axes, part: Sequence[Loss], offset: int, colour: Colour, label: str | None) -> None:
    points = [(offset + line.step, line.loss) for line in part if line.loss is not None]
    points = points[:: max(1, math.ceil(len(points) / MAX_POINTS))]
    steps, values = [step for step, _ in points], [value for _, value in points]
    axes.plot(steps, values, color=colour.light, linewidth=0.8, alpha=0.35)
    axes.plot(steps, _smooth(values), color=colour.light, linewidth=1.8, label=label)


def _smooth(values: Sequence[float], keep: float = 0.8) -> list[float]:
    """An exponential moving average that starts unbiased."""
    result, mean, weight = [], 0.0, 0.0
    for value in values:
        mean, weight = keep * mean + (1 - keep) * value, keep * weight + (1 - keep)
        result.append(mean / weight)
    return result
