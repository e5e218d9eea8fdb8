"""What is drawn of runs: each figure under its name and described for whoever cannot see it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from safecl.report import figures, sentences, words
from safecl.report.answers import confusion, maps, weights
from safecl.report.colours import PALETTE, Colour, paired, variable
from safecl.report.drawing import Size, canvas, inline_svg
from safecl.report.runs import Run
from safecl.report.series import Series, alike, display, folded

# Inches at 72 to the inch are CSS pixels: each figure is drawn near the width at which it will be read.
WIDE, NARROW, PANEL, SQUARE = (12.6, 4.5), (4.3, 3.7), (4.3, 2.9), (4.3, 4.1)
LARGER = 1.25  # a figure as a file, with a title and a legend of its own
MAX_BARS = 40  # classes whose weights can be told apart on a panel
DRAWN = len(PALETTE)  # configurations with curves, bars and a matrix: each has a colour of its own
DETAILED = 6  # of them, those with figures and pictures of their own
Named = Sequence[tuple[Run, str]]


@dataclass(frozen=True)
class Choice:
    """What is shown of any number of runs: all there is of a few, of many the best."""

    every: list[Series]  # all outputs of all configurations
    mains: list[Series]  # the methods' own
    twins: list[Series]  # parts with the accuracies of their method, which are not drawn
    series: list[Series]  # what is drawn as curves
    best: list[Series]  # the mains among them
    chosen: list[Series]  # the mains with figures of their own
    crowded: bool  # whether only the best are drawn

    @property
    def listed(self) -> list[Series]:
        """What tables hold."""
        return self.mains if self.crowded else self.every

    @property
    def barred(self) -> list[Series]:
        """What has bars by session."""
        return [one for one in (self.series if len(self.mains) <= DETAILED else self.best) if one.pooled]

    @property
    def detailed(self) -> list[tuple[Run, str]]:
        """The runs with figures of their own, which are those of the first seeds."""
        return [(one.runs[0], seeded(one, one.runs[0])) for one in self.chosen]


def choose(runs: Sequence[Run]) -> Choice:
    every = folded(runs)
    mains, twins = [one for one in every if one.main], alike(every)
    best, crowded = _best(mains, DRAWN), len(mains) > DRAWN
    series = [one for one in every if not any(one is twin for twin in twins)]
    if crowded:
        series = best = [replace(one, colour=colour) for one, colour in zip(best, PALETTE, strict=True)]
    return Choice(every, mains, twins, series, best, _best(mains, DETAILED), crowded)


def _best(mains: Sequence[Series], most: int) -> list[Series]:
    """At most ``most``, those with the highest final accuracy, in their order."""
    chosen = {id(one) for one in sorted(mains, key=lambda one: -(one.final_seen or 0.0))[:most]}
    return [one for one in mains if id(one) in chosen]


def seeded(one: Series, run: Run) -> str:
    """The name of one of a configuration's runs: which seed it is, where there are several."""
    return one.name if len(one.runs) == 1 else f"{one.name} (seed {run.facts.seed})"


@dataclass(frozen=True)
class Panel:
    """A figure under its own name, its description, and for a page a colour for each thing that it tells apart.

    ``file``: the name of its file; no two figures of a page have the same.
    """

    name: str
    file: str
    draw: Callable[[Axes], None]
    label: str
    size: Size = PANEL
    colour: str = ""
    legend: Sequence[tuple[str, str]] = ()
    note: str = ""

    @property
    def svg(self) -> Markup:
        """For a page, which has its title and its legend."""
        with canvas(self.size) as (figure, (axes,)):
            self.draw(axes)
        return inline_svg(figure, self.label, self.file)

    def figure(self) -> Figure:
        """With a title and a legend."""
        with canvas((LARGER * self.size[0], LARGER * self.size[1])) as (figure, (axes,)):
            self.draw(axes)
            axes.set_title(self.name)
            if axes.get_legend_handles_labels()[1] and not axes.get_legend():
                figure.legend(loc="outside lower center", ncols=4, fontsize=10)
        return figure


def curves(series: Sequence[Series]) -> dict[str, Panel]:
    """The same curves for a desk and for a phone, of which the page shows one."""
    lines = [f"{one.name}: {_percentages(value for _, value in one.pooled) or 'nothing yet'}" for one in series]
    label = f"Accuracy in percent on {sentences.tested(series)}, after each session. {'. '.join(lines)}."
    draw, sizes = partial(figures.accuracy_curves, series=series), {"wide": WIDE, "narrow": NARROW}
    return {name: Panel("", f"curve-{name}", draw, label, size) for name, size in sizes.items()}


def session_bars(series: Sequence[Series]) -> Figure:
    """What is left of each session, a pane for each series."""
    across = min(3, len(series))
    with canvas((3.6 * across, 2.6 * -(-len(series) // across)), len(series), across) as (figure, every):
        for axes, one in zip(every, series, strict=True):
            figures.session_bars(axes, one)
            axes.set_title(one.name)
    return figure


def all_panels(choice: Choice) -> dict[str, list[Panel]]:
    """By section of the page."""
    matrices = choice.series if len(choice.mains) == 1 else choice.best
    named = {"weights": _weights, "confusions": _confusions, "losses": _losses, "times": _times}
    return {
        "bars": [_bars(one) for one in choice.barred],
        "matrices": [_matrix(one) for one in matrices if one.pooled],
        "validations": [_validation(one) for one in choice.best if one.validation],
        "kept": _kept(choice.best),
        **{section: [one for run in choice.detailed for one in make(*run)] for section, make in named.items()},
    }


def _bars(one: Series) -> Panel:
    row = enumerate(one.rows.get(one.run.done, []), start=1)
    values = ", ".join(f"{i}: {100 * value:.1f}" for i, value in row if value is not None)
    label = f"final accuracy in percent for each session. {values}"
    return _of(one, "bars", partial(figures.session_bars, one=one), label)


def _matrix(one: Series) -> Panel:
    label = "accuracy on each session's test pictures (columns) after each session (rows), in percent"
    return _of(one, "matrix", partial(figures.matrix, series=one), label, SQUARE)


def _validation(one: Series) -> Panel:
    test, held = (_percentages(value for _, value in each) for each in (one.pooled, one.validation))
    label = f"accuracy in percent after each session, on test pictures {test}; on held-out pictures {held}"
    return _of(one, "validation", partial(figures.validation_curves, one=one), label)


def _kept(series: Sequence[Series]) -> list[Panel]:
    known = [one for one in series if any(line.bytes_kept is not None for line in one.run.metrics)]
    parts = [f"{one.name}: {words.size(one.run.last.bytes_kept)}" for one in known if one.run.last]
    label = f"Bytes kept after each session; at the end {', '.join(parts)}"
    legend = _legend((one.name, one.colour) for one in known)
    draw = partial(figures.kept_curves, series=known)
    return [Panel("Bytes kept", "kept", draw, label, legend=legend)] if known else []


def _weights(run: Run, name: str) -> Iterator[Panel]:
    found = weights(run)
    sessions: dict[int, list[float]] = {}
    for one in found:
        sessions.setdefault(one.session, []).append(one.fast)
    parts = [f"session {t}: {100 * sum(values) / len(values):.1f}" for t, values in sorted(sessions.items())]
    label = f"{name}: mean weight of the fast learner in percent, by the session of a class. {', '.join(parts)}"
    size = (PANEL if len(found) <= MAX_BARS else WIDE)[0], PANEL[1]
    if found:
        yield Panel(name, f"weights {name}", partial(figures.weight_bars, found=found), label, size)


def _confusions(run: Run, name: str) -> Iterator[Panel]:
    found = confusion(run)
    if found is not None:
        parts = [
            f"{label} as {other} {times}"
            for label, row in zip(found.labels, found.counts, strict=True)
            for other, times in zip(found.labels, row, strict=True)
            if times and other != label
        ]
        label = f"{name}: answers among the classes that are confused most often. {', '.join(parts)}"
        yield Panel(name, f"confusion {name}", partial(figures.confusion_matrix, found=found), label, SQUARE)


def _losses(run: Run, name: str) -> Iterator[Panel]:
    """One for each kind of phase."""
    for phase in figures.phases(run):
        terms, title = figures.loss_colours(run, phase), f"{name}: {phase}"
        label = f"{title}: {words.listed(list(terms))} over all steps; the numbers are in the table"
        draw = partial(figures.loss_curves, run=run, phase=phase)
        yield Panel(title, f"loss {title}", draw, label, legend=_legend(terms.items()))


def _times(run: Run, name: str) -> Iterator[Panel]:
    parts = figures.time_parts(run)
    spent = [f"{part}: {', '.join(f'{v:.1f}' for v in seconds)}" for part, (_, seconds) in parts.items()]
    label = f"{name}: seconds by session. {'. '.join(spent)}"
    legend = _legend((part, colour) for part, (colour, _) in parts.items())
    if parts:
        yield Panel(name, f"time {name}", partial(figures.time_bars, run=run), label, legend=legend)


def feature_maps(named: Named) -> list[tuple[str, list[Panel], list[tuple[str, str]]]]:
    """For each run with features: its name, a map for each network, and the classes with their colours."""
    result = []
    for i, (run, name) in enumerate(named):
        drawn = []
        labels = run.features.labels if run.features else []
        for one in maps(run, [other for other, _ in named[:i]]):
            title = "Before: the frozen backbone" if one.network == "backbone" else f"After: {display(one.network)}"
            note = f"{words.percent(one.near)} of the pictures have a nearest neighbour of their own class."
            draw, file = partial(figures.feature_map, found=one, labels=labels), f"features {name} {one.network}"
            label = f"{name}: t-SNE of the features of {one.network}. {note}"
            drawn.append(Panel(title, file, draw, label, SQUARE, note=note))
        if drawn:
            result.append((name, drawn, _legend((words.short(label), c) for label, c in paired(labels).items())))
    return result


def _of(one: Series, kind: str, draw: Callable[[Axes], None], label: str, size: Size = PANEL) -> Panel:
    return Panel(one.name, f"{kind} {one.name}", draw, f"{one.name}: {label}", size, variable(one.colour.light))


def _legend(items: Iterable[tuple[str, Colour]]) -> list[tuple[str, str]]:
    return [(name, variable(colour.light)) for name, colour in items]


def _percentages(values: Iterable[float]) -> str:
    return ", ".join(f"{100 * value:.1f}" for value in values)
