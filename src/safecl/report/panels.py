"""The figures of a page as SVG, each under its name and described for whoever cannot see it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from safecl.report import answer_figures, figures, sentences, training_figures, words
from safecl.report.answers import confusion, maps, weights
from safecl.report.colours import paired, variable
from safecl.report.drawing import inline_svg
from safecl.report.runs import Run
from safecl.report.series import Series, display

# Inches at 72 to the inch are CSS pixels: each figure is drawn near the width at which it will be read.
WIDE, NARROW, PANEL = (12.6, 4.5), (4.3, 3.7), (4.3, 2.9)
SMALL: dict[str, Any] = {"size": PANEL, "bare": True}
SQUARE: dict[str, Any] = {"size": (4.3, 4.1), "bare": True}
MAX_BARS = 40  # classes whose weights can be told apart on a panel
Named = Sequence[tuple[Run, str]]


@dataclass(frozen=True)
class Panel:
    """A figure under its own name, with a colour for each thing that it tells apart, and its description.

    ``draw()`` gives it with a title and a legend of its own, ``draw(**page)`` for a page that has both.
    ``file``: the name of its file; no two figures of a page have the same.
    """

    name: str
    file: str
    draw: Callable[..., Figure]
    page: Mapping[str, Any]
    label: str
    colour: str = ""
    legend: Sequence[tuple[str, str]] = ()
    note: str = ""

    @property
    def svg(self) -> Markup:
        return inline_svg(self.draw(**self.page), self.label, self.file)


def curves(series: Sequence[Series]) -> list[tuple[str, Markup]]:
    """The same curves drawn for a desk and for a phone; the page shows one of them."""
    lines = [f"{one.name}: {_percentages(value for _, value in one.pooled) or 'nothing yet'}" for one in series]
    label = f"Accuracy in percent on {sentences.tested(series)}, after each session. {'. '.join(lines)}."
    sizes = {"wide": WIDE, "narrow": NARROW}
    return [(n, inline_svg(figures.accuracy_curves(series, s, True), label, f"curve-{n}")) for n, s in sizes.items()]


def bars(series: Sequence[Series]) -> list[Panel]:
    """What is left of each session."""
    result = []
    for one in series:
        row = enumerate(one.rows.get(one.run.done, []), start=1)
        values = ", ".join(f"{i}: {100 * value:.1f}" for i, value in row if value is not None)
        label = f"final accuracy in percent for each session. {values}"
        result.append(_of(one, "bars", partial(figures.session_bars, [one]), SMALL, label))
    return result


def matrices(series: Sequence[Series]) -> list[Panel]:
    """Every session against every session."""
    label = "accuracy on each session's test pictures (columns) after each session (rows), in percent"
    return [_of(one, "matrix", partial(figures.matrix, one), SQUARE, label) for one in series]


def validations(series: Sequence[Series]) -> list[Panel]:
    """Accuracy on held-out training pictures beside that on test pictures."""
    result = []
    for one in series:
        test, held = (_percentages(value for _, value in each) for each in (one.pooled, one.validation))
        label = f"accuracy in percent after each session, on test pictures {test}; on held-out pictures {held}"
        if one.validation:
            result.append(_of(one, "validation", partial(figures.validation_curves, one), SMALL, label))
    return result


def kept(series: Sequence[Series]) -> list[Panel]:
    """Bytes kept after each session."""
    known = [one for one in series if any(line.bytes_kept is not None for line in one.run.metrics)]
    if not known:
        return []
    parts = [f"{one.name}: {words.size(one.run.last.bytes_kept)}" for one in known if one.run.last]
    label = f"Bytes kept after each session; at the end {', '.join(parts)}"
    legend = [(one.name, variable(one.colour.light)) for one in known]
    draw = partial(training_figures.kept_curves, known)
    return [Panel("Bytes kept", "kept", draw, SMALL, label, legend=legend)]


def aggregation(named: Named) -> list[Panel]:
    """Which learner counts how much, class by class."""
    result = []
    for run, name in named:
        found = weights(run)
        if found:
            sessions: dict[int, list[float]] = {}
            for one in found:
                sessions.setdefault(one.session, []).append(one.weights.get("fast", 0.5))
            parts = [f"session {t}: {100 * sum(values) / len(values):.1f}" for t, values in sorted(sessions.items())]
            label = f"{name}: mean weight of the fast learner in percent, by the session of a class. {', '.join(parts)}"
            size = (PANEL if len(found) <= MAX_BARS else WIDE)[0], PANEL[1]
            draw = partial(answer_figures.weight_bars, found)
            result.append(Panel(name, f"weights {name}", draw, {"size": size}, label))
    return result


def feature_maps(named: Named) -> list[tuple[str, list[Panel], list[tuple[str, str]]]]:
    """For each run with features: its name, a map for each network, and the classes with their colours."""
    result = []
    for i, (run, name) in enumerate(named):
        drawn = []
        labels = run.features.labels if run.features else []
        for one in maps(run, [other for other, _ in named[:i]]):
            title = "Before: the frozen backbone" if one.network == "backbone" else f"After: {display(one.network)}"
            note = f"{words.percent(one.near)} of the pictures have a nearest neighbour of their own class."
            draw, file = partial(answer_figures.feature_map, one, labels), f"features {name} {one.network}"
            label = f"{name}: t-SNE of the features of {one.network}. {note}"
            drawn.append(Panel(title, file, draw, SQUARE, label, note=note))
        if drawn:
            classes = paired(list(dict.fromkeys(labels)))
            result.append((name, drawn, [(words.short(label), variable(c.light)) for label, c in classes.items()]))
    return result


def confusions(named: Named) -> list[Panel]:
    """Answers among the classes that are confused most often."""
    result = []
    for run, name in named:
        found = confusion(run)
        if found is not None:
            parts = [
                f"{label} as {found.labels[j]} {times}"
                for label, row in zip(found.labels, found.counts, strict=True)
                for j, times in enumerate(row)
                if times and found.labels[j] != label
            ]
            label = f"{name}: answers among the classes that are confused most often. {', '.join(parts)}"
            draw = partial(answer_figures.confusion_matrix, found)
            result.append(Panel(name, f"confusion {name}", draw, {"size": SQUARE["size"]}, label))
    return result


def losses(named: Named) -> list[Panel]:
    """The loss by term, for each kind of phase."""
    result: list[Panel] = []
    for run, name in named:
        for phase in training_figures.phases(run):
            terms, title = training_figures.loss_colours(run, phase), f"{name}: {phase}"
            label = f"{title}: {words.listed(list(terms))} over all steps; the numbers are in the table"
            legend = [(term, variable(colour.light)) for term, colour in terms.items()]
            draw = partial(training_figures.loss_curves, run, phase)
            result.append(Panel(title, f"loss {title}", draw, SMALL, label, legend=legend))
    return result


def times(named: Named) -> list[Panel]:
    """Where the time of each session went."""
    result = []
    for run, name in named:
        parts = training_figures.time_parts(run)
        if parts:
            spent = [f"{part}: {', '.join(f'{v:.1f}' for v in seconds)}" for part, (_, seconds) in parts.items()]
            label = f"{name}: seconds by session. {'. '.join(spent)}"
            legend = [(part, variable(colour.light)) for part, (colour, _) in parts.items()]
            draw = partial(training_figures.time_bars, run)
            result.append(Panel(name, f"time {name}", draw, SMALL, label, legend=legend))
    return result


def _of(one: Series, kind: str, draw: Callable[..., Figure], page: Mapping[str, Any], label: str) -> Panel:
    return Panel(one.name, f"{kind} {one.name}", draw, page, f"{one.name}: {label}", variable(one.colour.light))


def _percentages(values: Iterable[float]) -> str:
    return ", ".join(f"{100 * value:.1f}" for value in values)
