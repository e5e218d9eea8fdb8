"""What a page shows as files: figures as SVG and PNG, tables as CSV and LaTeX."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from matplotlib.figure import Figure

from safecl.atomic import write_bytes
from safecl.errors import SafeclError
from safecl.report import answer_figures, answers, figures, run_tables, training_figures
from safecl.report.drawing import saved
from safecl.report.fold import folded
from safecl.report.formats import as_csv, as_latex
from safecl.report.page import DETAILED, DRAWN, accuracy_tables, best, read_runs, seeded
from safecl.report.runs import Run
from safecl.report.series import alike, display
from safecl.report.tables import Table

T = TypeVar("T")


def write_files(folders: Sequence[Path], target: Path) -> list[Path]:
    """Write every figure and table of the runs into the folder ``target``; gives the files."""
    runs = read_runs(folders)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SafeclError(f"{target} cannot be made ({error.strerror}); choose another place.") from error
    written = []
    for name, figure in distinct(all_figures(runs)):
        for kind in ("svg", "png"):
            written.append(_write(target / f"{name}.{kind}", saved(figure, kind)))
    for name, table in distinct(all_tables(runs)):
        written.append(_write(target / f"{name}.csv", as_csv(table).encode()))
        written.append(_write(target / f"{name}.tex", as_latex(table).encode()))
    return written


def all_figures(runs: Sequence[Run]) -> Iterator[tuple[str, Figure]]:
    """The figures of a page by file name, with titles and legends of their own."""
    every = folded(runs)
    mains = [one for one in every if one.main]
    shown = [one for one in best(mains, DRAWN) if one.pooled]
    drawn, twins = {id(one.run) for one in shown}, {id(one) for one in alike(every)}
    series = [one for one in every if id(one.run) in drawn and id(one) not in twins]
    series = series if len(mains) <= DRAWN else shown
    if shown:
        yield "accuracy", figures.accuracy_curves(series)
        yield "sessions", figures.session_bars(series if len(mains) <= DETAILED else shown)
    for one in shown:
        yield f"matrix-{slug(one.name)}", figures.matrix(one)
        if one.validation:
            yield f"validation-{slug(one.name)}", figures.validation_curves(one)
    known = [one for one in shown if any(line.bytes_kept is not None for line in one.run.metrics)]
    if known:
        yield "kept", training_figures.kept_curves(known)
    for one in best(mains, DETAILED):
        yield from _figures_of(one.runs[0], seeded(one))


def _figures_of(run: Run, title: str) -> Iterator[tuple[str, Figure]]:
    """The figures of a single run."""
    name = slug(title)
    for phase in training_figures.phases(run):
        yield f"loss-{name}-{slug(phase)}", training_figures.loss_curves(run, phase)
    if run.metrics:
        yield f"time-{name}", training_figures.time_bars(run, (7, 3.2))
    weights = answers.weights(run)
    if weights:
        yield f"weights-{name}", answer_figures.weight_bars(weights)
    confusion = answers.confusion(run)
    if confusion is not None:
        yield f"confusion-{name}", answer_figures.confusion_matrix(confusion)
    for one in answers.maps(run):
        assert run.features is not None
        figure = answer_figures.feature_map(one, run.features.labels, (4.8, 3.4), display(one.network))
        yield f"features-{name}-{slug(one.network)}", figure


def all_tables(runs: Sequence[Run]) -> Iterator[tuple[str, Table]]:
    """The tables of a page by file name."""
    every = folded(runs)
    mains = [one for one in every if one.main]
    for table in accuracy_tables(mains if len(mains) > DRAWN else every):
        yield slug(table.title), table
    begun = [one for one in mains if one.run.metrics]
    if begun:
        yield "costs", run_tables.kept(begun)
    yield "versions", run_tables.environments([(one.run, one.name) for one in mains])
    makers = {"decisions": run_tables.decisions, "confused": run_tables.confused, "classes": run_tables.by_class}
    for one in best(mains, DETAILED):
        run, title = one.runs[0], seeded(one)
        for kind, make in makers.items():
            made = make(run, title)
            if made is not None:
                yield f"{kind}-{slug(title)}", made
        if run.losses:
            yield f"losses-{slug(title)}", run_tables.losses(run, title)
        if run.metrics:
            yield f"time-{slug(title)}", run_tables.costs(run, title)


def slug(text: str) -> str:
    """A file name: lower case, with hyphens."""
    return re.sub(r"[^\w]+", "-", text.lower()).strip("-")[:80] or "run"


def distinct(named: Iterable[tuple[str, T]]) -> Iterator[tuple[str, T]]:
    """With a number behind a name that was there before."""
    taken: Counter[str] = Counter()
    for name, thing in named:
        taken[name] += 1
        yield name if taken[name] == 1 else f"{name}-{taken[name]}", thing


def _write(path: Path, data: bytes) -> Path:
    write_bytes(path, data)
    return path
