"""What is drawn of runs: each figure under its name and described for whoever cannot see it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from safecl.report import figures
from safecl.report.colours import PALETTE, variable
from safecl.report.drawing import Size, canvas, inline_svg
from safecl.report.runs import Run
from safecl.report.series import Series, all_series

# Inches at 72 to the inch are CSS pixels: each figure is drawn near the width at which it will be
# read.
WIDE = (12.6, 4.5)
NARROW = (4.3, 3.7)
PANEL = (4.3, 2.9)
LARGER = 1.25  # a figure as a file, with a title and a legend of its own
DRAWN = len(PALETTE)  # configurations with curves and bars: each has a colour of its own
DETAILED = 6  # of them, those with figures and pictures of their own


@dataclass(frozen=True)
class Choice:
    """What is shown of any number of runs: all there is of a few, of many the best."""

    every: list[Series]  # all outputs of all configurations
    mains: list[Series]  # the methods' own
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
        return [
            one for one in (self.series if len(self.mains) <= DETAILED else self.best) if one.pooled
        ]

    @property
    def detailed(self) -> list[tuple[Run, str]]:
        """The runs with figures of their own, which are those of the first seeds."""
        return [(one.runs[0], seeded(one, one.runs[0])) for one in self.chosen]


def choose(runs: Sequence[Run]) -> Choice:
    every = all_series(runs, fold_seeds=True)
    mains = [one for one in every if one.main]
    best = _best(mains, DRAWN)
    crowded = len(mains) > DRAWN
    series = every
    if crowded:
        series = best = [
            replace(one, colour=colour) for one, colour in zip(best, PALETTE, strict=True)
        ]
    return Choice(every, mains, series, best, _best(mains, DETAILED), crowded)


def _best(mains: Sequence[Series], most: int) -> list[Series]:
    """At most ``most``, those with the highest final accuracy, in their order."""
    chosen = {id(one) for one in sorted(mains, key=lambda one: -(one.final_seen or 0.0))[:most]}
    return [one for one in mains if id(one) in chosen]


def seeded(one: Series, run: Run) -> str:
    """The name of one of a configuration's runs: which seed it is, where there are several."""
    return one.name if len(one.runs) == 1 else f"{one.name} (seed {run.facts.seed})"


@dataclass(frozen=True)
class Panel:
    """A figure under its own name, and for a page a colour for each thing that it tells apart.

    ``draw``: draws it and gives its description. ``file``: the name of its file, which no other
    figure of a page has.
    """

    name: str
    file: str
    draw: Callable[[Axes], str]
    size: Size = PANEL
    colour: str = ""
    legend: Sequence[tuple[str, str]] = ()

    @property
    def svg(self) -> Markup:
        """For a page, which has its title and its legend."""
        with canvas(self.size) as (figure, (axes,)):
            described = self.draw(axes)
        return inline_svg(
            figure, f"{self.name}: {described}" if self.name else described, self.file
        )

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
    draw = partial(figures.accuracy_curves, series=series)
    sizes = {"wide": WIDE, "narrow": NARROW}
    return {name: Panel("", f"curve-{name}", draw, size) for name, size in sizes.items()}


def all_panels(choice: Choice) -> dict[str, list[Panel]]:
    """By section of the page."""
    found: dict[str, list[Panel]] = {"bars": [], "weights": [], "losses": []}
    for one in choice.barred:
        draw = partial(figures.session_bars, one=one)
        colour = variable(one.colour.light)
        found["bars"].append(Panel(one.name, f"bars {one.name}", draw, colour=colour))
    for run, name in choice.detailed:
        if weighed := run.weights():
            found["weights"].append(
                Panel(name, f"weights {name}", partial(figures.weight_bars, found=weighed))
            )
        for phase in figures.phases(run):
            draw = partial(figures.loss_curves, run=run, phase=phase)
            title = f"{name}: {phase}"
            legend = [
                (term, variable(c.light)) for term, c in figures.loss_colours(run, phase).items()
            ]
            found["losses"].append(Panel(title, f"loss {title}", draw, legend=legend))
    return found
