"""The figures of training: the loss by term, where the time went, what is kept."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from safecl.report import words
from safecl.report.colours import COLOURS, GRID, INK, PALETTE, SPARE, Colour, paired
from safecl.report.drawing import Size, new_figure, session_axis, style
from safecl.report.runs import Loss, Run
from safecl.report.series import Series

MAX_POINTS = 300  # of a loss curve: more cannot be seen, and would be written out one by one
TOTAL = "total"


def loss_curves(run: Run, phase: str, size: Size = (7, 3.2), bare: bool = False) -> Figure:
    """The training loss and its terms over all steps of a kind of phase; the vertical lines start a session."""
    with style():
        figure, axes = new_figure(size)
        parts = [part for part in run.loss_parts() if kind_of_phase(part[0].phase) == phase]
        colours = loss_colours(run, phase)
        offset, named, session = 0, set[str](), 0
        for part in parts:
            if part[0].session != session:
                session = part[0].session
                axes.axvline(offset, color=GRID, linewidth=1)
                axes.annotate(
                    str(session), (offset, 1), xycoords=("data", "axes fraction"), xytext=(3, -2),
                    textcoords="offset points", va="top", color=INK, fontsize=9,
                )  # fmt: skip
            for term, colour in colours.items():
                points = [(offset + line.step, _value(line, term)) for line in part]
                if _loss_line(axes, points, colour, term, None if term in named else term):
                    named.add(term)
            offset += max(line.step for line in part) + 1
        axes.set(xlabel="steps", ylabel="loss")
        axes.margins(x=0.01)
        axes.grid(False, axis="x")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        if named and not bare:
            axes.legend(frameon=False)
        return figure


def loss_colours(run: Run, phase: str) -> dict[str, Colour]:
    """The terms of a kind of phase with their colours; the total first, where there are several terms."""
    lines = [line for line in run.losses if kind_of_phase(line.phase) == phase]
    terms = list(dict.fromkeys(term for line in lines for term in line.terms))
    if len(terms) < 2:
        return {TOTAL: _main_colour(run)}
    others = [colour for colour in PALETTE if colour != _main_colour(run)]
    return {TOTAL: _main_colour(run), **{term: others[i % len(others)] for i, term in enumerate(terms)}}


def phases(run: Run) -> list[str]:
    """The kinds of phases that were trained: what is kept first, pilots last."""
    kinds = dict.fromkeys(kind_of_phase(line.phase) for line in run.losses)
    return sorted(kinds, key=lambda kind: kind == "pilot")


def kind_of_phase(phase: str) -> str:
    """``pilot`` for ``pilot2``: phases of a kind have one name and one figure."""
    return phase.rstrip("0123456789")


def time_bars(run: Run, size: Size = (7, 3.2), bare: bool = False) -> Figure:
    """For each session a bar of its seconds: training phases, statistics and evaluation."""
    with style():
        figure, axes = new_figure(size)
        below = [0.0] * len(run.metrics)
        for name, (colour, seconds) in time_parts(run).items():
            sessions = [line.session for line in run.metrics]
            axes.bar(sessions, seconds, bottom=below, width=0.72, color=colour.light, label=name)
            below = [start + more for start, more in zip(below, seconds, strict=True)]
        session_axis(axes, run.total)
        axes.set(xlabel="session", ylabel="seconds")
        axes.grid(False, axis="x")
        if run.metrics and not bare:
            axes.legend(frameon=False)
        return figure


def time_parts(run: Run) -> dict[str, tuple[Colour, list[float]]]:
    """By kind of phase or stage: its colour, and its seconds in each session."""
    lines = [_stages(line.seconds, [(p.phase, p.seconds) for p in line.phases]) for line in run.metrics]
    trained = {kind_of_phase(phase.phase) for line in run.metrics for phase in line.phases}
    names = sorted(dict.fromkeys(name for line in lines for name in line), key=lambda name: name not in trained)
    return {name: (colour, [line.get(name, 0.0) for line in lines]) for name, colour in paired(names).items()}


def _stages(seconds: dict[str, float | None], phases: Sequence[tuple[str, float | None]]) -> dict[str, float]:
    """The parts of a session's time: the phases in place of "fit", where there are any; no total."""
    found: dict[str, float] = {}
    for phase, value in phases:
        found[kind_of_phase(phase)] = found.get(kind_of_phase(phase), 0.0) + (value or 0.0)
    rest = {name: value or 0.0 for name, value in seconds.items() if name != "total"}
    if found:
        rest.pop("fit", None)
    return found | rest


def kept_curves(series: Sequence[Series], size: Size = (3.6, 2.6), bare: bool = False) -> Figure:
    """Bytes kept between sessions, after each session."""
    with style():
        figure, axes = new_figure(size)
        for one in series:
            points = [(line.session, line.bytes_kept) for line in one.run.metrics if line.bytes_kept is not None]
            axes.plot(
                [t for t, _ in points], [value for _, value in points], color=one.colour.light, linewidth=2,
                marker=one.colour.marker, markersize=5, label=one.name,
            )  # fmt: skip
        session_axis(axes, max((one.run.total for one in series), default=1))
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: words.size(value)))
        axes.set_xlabel("sessions learned")
        if series and not bare:
            axes.legend(frameon=False)
        return figure


def _value(line: Loss, term: str) -> float | None:
    return line.loss if term == TOTAL else line.terms.get(term)


def _main_colour(run: Run) -> Colour:
    return COLOURS.get(run.facts.method, SPARE[0])


def _loss_line(
    axes: Axes, points: Sequence[tuple[int, float | None]], colour: Colour, term: str, label: str | None
) -> bool:
    """Draw a term: single values pale, their moving average strong; whether there is any."""
    found = [(step, value) for step, value in points if value is not None]
    found = found[:: max(1, math.ceil(len(found) / MAX_POINTS))]
    if not found:
        return False
    steps, values = [step for step, _ in found], [value for _, value in found]
    total = term == TOTAL
    if total:
        axes.plot(steps, values, color=colour.light, linewidth=0.8, alpha=0.35)
    marker = "o" if len(values) == 1 else ""  # a line needs two points
    axes.plot(
        steps, _smooth(values), color=colour.light, linewidth=2.2 if total else 1.3, label=label, marker=marker,
        markersize=4,
    )  # fmt: skip
    return True


def _smooth(values: Sequence[float], keep: float = 0.8) -> list[float]:
    """An exponential moving average that starts unbiased."""
    result, mean, weight = [], 0.0, 0.0
    for value in values:
        mean, weight = keep * mean + (1 - keep) * value, keep * weight + (1 - keep)
        result.append(mean / weight)
    return result
