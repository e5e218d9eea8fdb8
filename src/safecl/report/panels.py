"""The figures of a page as SVG, each under its name and described for whoever cannot see it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup
from matplotlib.figure import Figure

from safecl.report import answer_figures, figures, sentences, training_figures, words
from safecl.report.answers import Map, confusion, maps, weights
from safecl.report.colours import paired, variable
from safecl.report.drawing import inline_svg
from safecl.report.runs import Run
from safecl.report.series import Series, display

# Inches at 72 to the inch are CSS pixels: each figure is drawn near the width at which it will be read.
WIDE, NARROW, PANEL, SQUARE = (12.6, 4.5), (4.3, 3.7), (4.3, 2.9), (4.3, 4.1)
MAX_BARS = 40  # classes whose weights can be told apart on a panel
Named = Sequence[tuple[Run, str]]


@dataclass(frozen=True)
class Panel:
    """A small figure under its own name, with a colour for each thing that it tells apart."""

    name: str
    svg: Markup
    colour: str = ""
    legend: tuple[tuple[str, str], ...] = ()
    note: str = ""


def curves(series: Sequence[Series]) -> list[tuple[str, Markup]]:
    """The same curves drawn for a desk and for a phone; the page shows one of them."""
    lines = [f"{one.name}: {_percentages(value for _, value in one.pooled) or 'nothing yet'}" for one in series]
    label = f"Accuracy in percent on {sentences.tested(series)}, after each session. {'. '.join(lines)}."
    sizes = {"wide": WIDE, "narrow": NARROW}
    return [
        (n, inline_svg(figures.accuracy_curves(series, s, legend=False), label, f"curve-{n}")) for n, s in sizes.items()
    ]


def bars(series: Sequence[Series]) -> list[Panel]:
    """What is left of each session."""

    def said(one: Series) -> str:
        row = enumerate(one.rows.get(one.run.done, []), start=1)
        values = ", ".join(f"{i}: {100 * value:.1f}" for i, value in row if value is not None)
        return f"final accuracy in percent for each session. {values}"

    drawn = [one for one in series if one.pooled]
    return _panels(drawn, "bars", lambda one: figures.session_bars([one], PANEL, titles=False), said)


def matrices(series: Sequence[Series]) -> list[Panel]:
    """Every session against every session."""
    label = "accuracy on each session's test pictures (columns) after each session (rows), in percent"
    drawn = [one for one in series if one.pooled]
    return _panels(drawn, "matrix", lambda one: figures.matrix(one, SQUARE, title=False), lambda _: label)


def validations(series: Sequence[Series]) -> list[Panel]:
    """Accuracy on held-out training pictures beside that on test pictures."""

    def said(one: Series) -> str:
        test, held = (_percentages(value for _, value in each) for each in (one.pooled, one.validation))
        return f"accuracy in percent after each session, on test pictures {test}; on held-out pictures {held}"

    drawn = [one for one in series if one.validation]
    return _panels(drawn, "held", lambda one: figures.validation_curves(one, PANEL, title=False), said)


def aggregation(named: Named) -> list[Panel]:
    """Which learner counts how much, class by class."""
    result = []
    for i, (run, name) in enumerate(named):
        found = weights(run)
        if found:
            sessions: dict[int, list[float]] = {}
            for one in found:
                sessions.setdefault(one.session, []).append(one.weights.get("fast", 0.5))
            parts = [f"session {t}: {100 * sum(values) / len(values):.1f}" for t, values in sorted(sessions.items())]
            label = f"mean weight of the fast learner in percent, by the session of a class. {', '.join(parts)}"
            size = (PANEL if len(found) <= MAX_BARS else WIDE)[0], PANEL[1]
            result.append(_panel(name, answer_figures.weight_bars(found, size), label, f"weights-{i}"))
    return result


def feature_maps(named: Named) -> list[tuple[str, list[Panel], list[tuple[str, str]]]]:
    """For each run with features: its name, a map for each network, and the classes with their colours."""
    result = []
    for i, (run, name) in enumerate(named):
        found = maps(run, [other for other, _ in named[:i]])
        if not found or run.features is None:
            continue
        labels = run.features.labels
        drawn = [_map(one, name, labels, f"map-{i}-{place}") for place, one in enumerate(found)]
        classes = paired(list(dict.fromkeys(labels)))
        result.append((name, drawn, [(words.short(label), variable(c.light)) for label, c in classes.items()]))
    return result


def _map(one: Map, name: str, labels: Sequence[str], prefix: str) -> Panel:
    title = "Before: the frozen backbone" if one.network == "backbone" else f"After: {display(one.network)}"
    note = f"{words.percent(one.near)} of the pictures have a nearest neighbour of their own class."
    figure = answer_figures.feature_map(one, labels, SQUARE, legend=False)
    svg = inline_svg(figure, f"{name}: t-SNE of the features of {one.network}. {note}", prefix)
    return Panel(title, svg, note=note)


def confusions(named: Named) -> list[Panel]:
    """Answers among the classes that are confused most often."""
    result = []
    for i, (run, name) in enumerate(named):
        found = confusion(run)
        if found is not None:
            pairs = [(label, other) for label in found.labels for other in found.labels if label != other]
            counts = dict(zip(found.labels, found.counts, strict=True))
            parts = [
                f"{label} as {other} {times}"
                for label, other in pairs
                if (times := counts[label][found.labels.index(other)])
            ]
            label = f"answers among the classes that are confused most often. {', '.join(parts)}"
            result.append(_panel(name, answer_figures.confusion_matrix(found, SQUARE), label, f"confusion-{i}"))
    return result


def losses(named: Named) -> list[Panel]:
    """The loss by term, for each kind of phase."""
    result: list[Panel] = []
    for run, name in named:
        for phase in training_figures.phases(run):
            terms = training_figures.loss_colours(run, phase)
            figure = training_figures.loss_curves(run, phase, PANEL, legend=False)
            label = f"{words.listed(list(terms))} over all steps; the numbers are in the table"
            legend = [(term, colour.light) for term, colour in terms.items()]
            result.append(_panel(f"{name}: {phase}", figure, label, f"loss-{len(result)}", legend))
    return result


def times(named: Named) -> list[Panel]:
    """Where the time of each session went."""
    result = []
    for i, (run, name) in enumerate(named):
        parts = training_figures.time_parts(run)
        if parts:
            spent = [f"{part}: {', '.join(f'{v:.1f}' for v in seconds)}" for part, (_, seconds) in parts.items()]
            legend = [(part, colour.light) for part, (colour, _) in parts.items()]
            figure = training_figures.time_bars(run, PANEL, legend=False)
            result.append(_panel(name, figure, f"seconds by session. {'. '.join(spent)}", f"time-{i}", legend))
    return result


def kept(series: Sequence[Series]) -> list[Panel]:
    """Bytes kept after each session."""
    known = [one for one in series if any(line.bytes_kept is not None for line in one.run.metrics)]
    if not known:
        return []
    parts = [f"{one.name}: {words.size(one.run.last.bytes_kept)}" for one in known if one.run.last]
    figure = training_figures.kept_curves(known, PANEL, legend=False)
    legend = [(one.name, one.colour.light) for one in known]
    return [_panel("Bytes kept", figure, f"after each session; at the end {', '.join(parts)}", "kept", legend)]


def _panels(
    series: Sequence[Series], kind: str, draw: Callable[[Series], Figure], say: Callable[[Series], str]
) -> list[Panel]:
    return [
        _panel(one.name, draw(one), say(one), f"{kind}-{i}", colour=variable(one.colour.light))
        for i, one in enumerate(series)
    ]


def _panel(
    name: str, figure: Figure, label: str, prefix: str, legend: Sequence[tuple[str, str]] = (), colour: str = ""
) -> Panel:
    shades = tuple((term, variable(light)) for term, light in legend)
    return Panel(name, inline_svg(figure, f"{name}: {label}", prefix), colour, shades)


def _percentages(values: Iterable[float]) -> str:
    return ", ".join(f"{100 * value:.1f}" for value in values)
