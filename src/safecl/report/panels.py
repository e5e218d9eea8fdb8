"""The figures of a page as SVG, each under its name and told in words."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from safecl.report import alt, answer_figures, figures, training_figures
from safecl.report.answers import confusion, maps, weights
from safecl.report.drawing import paired
from safecl.report.runs import Run
from safecl.report.series import Series, display
from safecl.report.svg import inline_svg, variable
from safecl.report.words import short

# Inches at 72 to the inch are CSS pixels: each figure is drawn near the width at which it will be read.
WIDE, NARROW, PANEL, SQUARE = (12.6, 4.5), (4.3, 3.7), (4.3, 2.9), (4.3, 4.1)
MOST_BARS = 40  # classes whose weights can be told apart on a panel


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
    label = alt.curves(series)
    sizes = {"wide": WIDE, "narrow": NARROW}
    return [
        (n, inline_svg(figures.accuracy_curves(series, s, legend=False), label, f"curve-{n}")) for n, s in sizes.items()
    ]


def bars(series: Sequence[Series]) -> list[Panel]:
    """What is left of each session."""
    drawn = [(one, figures.session_bars([one], PANEL, titles=False)) for one in series if one.pooled]
    return [_panel(one, inline_svg(figure, alt.bars(one), f"bars-{i}")) for i, (one, figure) in enumerate(drawn)]


def matrices(series: Sequence[Series]) -> list[Panel]:
    """Every session against every session."""
    drawn = [(one, figures.matrix(one, SQUARE, title=False)) for one in series if one.pooled]
    return [_panel(one, inline_svg(figure, alt.matrix(one), f"matrix-{i}")) for i, (one, figure) in enumerate(drawn)]


def validations(series: Sequence[Series]) -> list[Panel]:
    """Accuracy on held-out training pictures beside that on test pictures."""
    drawn = [(one, figures.validation_curves(one, PANEL, title=False)) for one in series if one.validation]
    return [_panel(one, inline_svg(figure, alt.validation(one), f"held-{i}")) for i, (one, figure) in enumerate(drawn)]


def aggregation(named: Sequence[tuple[Run, str]]) -> list[Panel]:
    """Which learner counts how much, class by class."""
    result = []
    for i, (run, name) in enumerate(named):
        found = weights(run)
        if found:
            size = (PANEL if len(found) <= MOST_BARS else WIDE)[0], PANEL[1]
            svg = inline_svg(answer_figures.weight_bars(found, size), alt.weights(name, found), f"weights-{i}")
            result.append(Panel(name, svg))
    return result


def feature_maps(named: Sequence[tuple[Run, str]]) -> list[tuple[str, list[Panel], list[tuple[str, str]]]]:
    """For each run with features: its name, a map for each network, and the classes with their colours."""
    result = []
    for i, (run, name) in enumerate(named):
        found = maps(run, [other for other, _ in named[:i]])
        if not found or run.features is None:
            continue
        labels, drawn = run.features.labels, list[Panel]()
        for one in found:
            title = "Before: the frozen backbone" if one.network == "backbone" else f"After: {display(one.network)}"
            figure = answer_figures.feature_map(one, labels, SQUARE, legend=False)
            svg = inline_svg(figure, alt.feature_map(name, one), f"map-{i}-{len(drawn)}")
            drawn.append(Panel(title, svg, note=alt.neighbours(one)))
        classes = paired(list(dict.fromkeys(labels)))
        result.append((name, drawn, [(short(label), variable(colour.light)) for label, colour in classes.items()]))
    return result


def confusions(named: Sequence[tuple[Run, str]]) -> list[Panel]:
    """Answers among the classes that are confused most often."""
    result = []
    for i, (run, name) in enumerate(named):
        found = confusion(run)
        if found is not None:
            figure = answer_figures.confusion_matrix(found, SQUARE)
            result.append(Panel(name, inline_svg(figure, alt.confusion(name, found), f"confusion-{i}")))
    return result


def losses(named: Sequence[tuple[Run, str]]) -> list[Panel]:
    """The loss by term, for each kind of phase."""
    result: list[Panel] = []
    for run, name in named:
        for phase in training_figures.phases(run):
            terms = training_figures.loss_colours(run, phase)
            figure = training_figures.loss_curves(run, phase, PANEL, legend=False)
            svg = inline_svg(figure, alt.losses(name, phase, list(terms)), f"loss-{len(result)}")
            legend = tuple((term, variable(colour.light)) for term, colour in terms.items())
            result.append(Panel(f"{name}: {phase}", svg, legend=legend))
    return result


def times(named: Sequence[tuple[Run, str]]) -> list[Panel]:
    """Where the time of each session went."""
    result = []
    for i, (run, name) in enumerate(named):
        parts = training_figures.time_parts(run)
        if parts:
            seconds = {part: values["seconds"] for part, (_, values) in parts.items()}
            figure = training_figures.time_bars(run, PANEL, legend=False)
            legend = tuple((part, variable(colour.light)) for part, (colour, _) in parts.items())
            result.append(Panel(name, inline_svg(figure, alt.times(name, seconds), f"time-{i}"), legend=legend))
    return result


def kept(series: Sequence[Series]) -> list[Panel]:
    """Bytes kept after each session."""
    known = [one for one in series if any(line.bytes_kept is not None for line in one.run.metrics)]
    if not known:
        return []
    svg = inline_svg(training_figures.kept_curves(known, PANEL, legend=False), alt.kept(known), "kept")
    return [Panel("Bytes kept", svg, legend=tuple((one.name, variable(one.colour.light)) for one in known))]


def _panel(one: Series, svg: Markup) -> Panel:
    return Panel(one.name, svg, variable(one.colour.light))
