"""The figures of runs: each function draws one into the axes that it is given, and says it in
words.
"""

import math
from collections.abc import Sequence
from itertools import cycle
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from safecl.report import sentences, words
from safecl.report.colours import COLOURS, GRID, INK, PALETTE, SPARE, Colour
from safecl.report.drawing import percent_axis, session_axis
from safecl.report.runs import Run, Weight, kind_of_phase
from safecl.report.series import Series

MAX_POINTS = 300  # of a loss curve: more cannot be seen, and would be written out one by one
NAME = 14  # characters of a class's name on an axis
TOTAL = "total"
Points = Sequence[tuple[int, float]]


def accuracy_curves(axes: Axes, series: Sequence[Series]) -> str:
    """Accuracy on everything seen, after each session: methods as thick lines, their parts as thin
    ones.

    The band around the mean over several seeds is one standard deviation wide on each side.
    """
    lowest = 1.0
    for one in sorted(series, key=lambda one: one.main):  # the main lines lie on top
        band = one.band() if one.main else []
        lowest = min(
            [lowest, *(value for _, value in one.pooled), *(least for _, least, _ in band)]
        )
        if band:
            places, least, most = zip(*band, strict=True)
            axes.fill_between(places, least, most, color=one.colour.light, alpha=0.16, linewidth=0)
        width, marker, dashes = (2.6, 6.5, "-") if one.main else (1.2, 4.0, (0, (5, 2)))
        _line(
            axes,
            one.pooled,
            one.colour,
            one.name,
            linewidth=width,
            markersize=marker,
            linestyle=dashes,
        )
    sessions = max((one.run.total for one in series), default=1)
    percent_axis(axes, bottom=0.0 if lowest < 0.4 else math.floor(lowest * 10 - 1) / 10)
    session_axis(axes, sessions)
    axes.set_xlim(0.8, sessions + 0.2)
    axes.set_xlabel("sessions learned")
    curves = {
        one.name: ", ".join(f"{100 * value:.1f}" for _, value in one.pooled) for one in series
    }
    told = [f"{name}: {values or 'nothing yet'}" for name, values in curves.items()]
    return (
        f"Accuracy in percent on {sentences.tested(series)}, after each session. {'. '.join(told)}."
    )


def session_bars(axes: Axes, one: Series) -> str:
    """For each session a bar: what is known of it at the end.

    The outline is what was known right after the session was learned, so the empty part is what was
    forgotten. Sessions that are still to come (domain-incremental streams measure them too) are
    hatched.
    """
    last = one.rows.get(one.run.done, [])
    colour = one.colour.light
    told = []
    for i, value in enumerate(last, start=1):
        if value is None:
            continue
        told.append(f"{i}: {100 * value:.1f}")
        peak = one.accuracy(i, i)
        if peak is None:
            axes.bar(
                i, value, width=0.72, facecolor="none", edgecolor=colour, hatch="////", alpha=0.5
            )
        else:
            axes.bar(
                i, peak, width=0.72, facecolor="none", edgecolor=colour, linewidth=1, alpha=0.75
            )
            axes.bar(i, value, width=0.72, color=colour)
        if len(last) <= 10:
            # never across the outline
            top = peak if peak is not None and value < peak < value + 0.12 else value
            place: dict[str, Any] = {
                "xytext": (0, 2),
                "textcoords": "offset points",
                "ha": "center",
                "va": "bottom",
            }
            axes.annotate(f"{100 * value:.0f}", (i, top), fontsize=9, **place)
    percent_axis(axes)
    axes.set_ylim(0, 1.08)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    session_axis(axes, one.run.total)
    axes.grid(False, axis="x")
    axes.set_xlabel("classes of session" if not one.run.domain else "domain")
    return f"final accuracy in percent for each session. {', '.join(told)}"


def weight_bars(axes: Axes, found: Sequence[Weight]) -> str:
    """The mean weight of the fast learner by class, in the order of learning, from one half up or
    down.

    The vertical lines part the sessions.
    """
    colours = [COLOURS["fast" if one.fast > 0.5 else "slow"].light for one in found]
    axes.bar(
        range(len(found)), [one.fast - 0.5 for one in found], bottom=0.5, width=0.8, color=colours
    )
    for i, one in enumerate(found):
        if i == 0 or one.session != found[i - 1].session:
            _session_mark(axes, i - 0.5, one.session)
    axes.axhline(0.5, color=INK, linewidth=1)
    furthest = max(abs(one.fast - 0.5) for one in found)
    percent_axis(axes)
    axes.set_ylim(0.5 - max(1.25 * furthest, 0.02), 0.5 + max(1.25 * furthest, 0.02))
    axes.yaxis.set_major_formatter(
        PercentFormatter(1.0, decimals=0 if furthest > 0.04 else 1, symbol=" %")
    )
    axes.set_xlim(-0.5, len(found) - 0.5)
    axes.set_ylabel("weight of the fast learner")
    if len(found) <= 30:
        names = [words.short(one.label, NAME) for one in found]
        axes.set_xticks(range(len(found)), names, rotation=90 if max(map(len, names)) > 2 else 0)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))
        axes.set_xlabel("classes in the order of learning")
    axes.grid(False, axis="x")
    sessions = {
        one.session: fmean(other.fast for other in found if other.session == one.session)
        for one in found
    }
    told = [f"session {session}: {100 * mean:.1f}" for session, mean in sorted(sessions.items())]
    return (
        f"mean weight of the fast learner in percent, by the session of a class. {', '.join(told)}"
    )


def loss_curves(axes: Axes, run: Run, phase: str) -> str:
    """The training loss and its terms over all steps of a kind of phase; the vertical lines start a
    session.
    """
    offset = 0
    session = 0
    named = set[str]()
    colours = loss_colours(run, phase)
    for part in run.loss_parts():
        if kind_of_phase(part[0].phase) != phase:
            continue
        if part[0].session != session:
            session = part[0].session
            _session_mark(axes, offset, session)
        for term, colour in colours.items():
            values = [
                (offset + line.step, line.loss if term == TOTAL else line.terms.get(term))
                for line in part
            ]
            points = [(step, value) for step, value in values if value is not None]
            points = points[:: max(1, math.ceil(len(points) / MAX_POINTS))]
            if not points:
                continue
            if term == TOTAL:
                _line(axes, points, colour, None, linewidth=0.8, alpha=0.35, marker="")
            how = {
                "linewidth": 2.2 if term == TOTAL else 1.3,
                "marker": "o" if len(points) == 1 else "",
            }
            _line(axes, _smooth(points), colour, None if term in named else term, **how)
            named.add(term)
        offset += part[-1].step + 1
    axes.set(xlabel="steps", ylabel="loss")
    axes.margins(x=0.01)
    axes.grid(False, axis="x")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    return f"{words.listed(list(colours))} over all steps"


def loss_colours(run: Run, phase: str) -> dict[str, Colour]:
    """The terms of a kind of phase with their colours; the total first, alone where there is a
    single term.
    """
    terms = dict.fromkeys(
        term for line in run.losses if kind_of_phase(line.phase) == phase for term in line.terms
    )
    main = COLOURS.get(run.facts.method, SPARE[0])
    others = cycle(colour for colour in PALETTE if colour != main)
    return {TOTAL: main, **(dict(zip(terms, others, strict=False)) if len(terms) > 1 else {})}


def phases(run: Run) -> list[str]:
    """The kinds of phases that were trained: what is kept first, pilots last."""
    kinds = dict.fromkeys(kind_of_phase(line.phase) for line in run.losses)
    return sorted(kinds, key=lambda kind: kind == "pilot")


def _line(axes: Axes, points: Points, colour: Colour, label: str | None, **how: Any) -> None:
    how = {"linewidth": 2, "marker": colour.marker, "markersize": 5, **how}
    axes.plot(
        [x for x, _ in points],
        [y for _, y in points],
        color=colour.light,
        label=label,
        clip_on=False,
        **how,
    )


def _session_mark(axes: Axes, place: float, session: int) -> None:
    """A vertical line where a session starts, with its number."""
    axes.axvline(place, color=GRID, linewidth=1)
    how: dict[str, Any] = {
        "xytext": (3, -2),
        "textcoords": "offset points",
        "va": "top",
        "fontsize": 9,
    }
    axes.annotate(str(session), (place, 1), xycoords=("data", "axes fraction"), color=INK, **how)


def _smooth(points: Points, keep: float = 0.8) -> list[tuple[int, float]]:
    """An exponential moving average that starts unbiased."""
    result = []
    mean = 0.0
    weight = 0.0
    for step, value in points:
        mean = keep * mean + (1 - keep) * value
        weight = keep * weight + (1 - keep)
        result.append((step, mean / weight))
    return result
