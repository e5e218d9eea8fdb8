"""What a page shows as files: figures as SVG and PNG, tables as CSV and LaTeX."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from matplotlib.figure import Figure

from safecl.atomic import write_bytes
from safecl.report import figures, panels, run_tables
from safecl.report.drawing import saved
from safecl.report.page import choose, read_runs
from safecl.report.runs import Run
from safecl.report.table import Table, as_csv, as_latex
from safecl.report.tables import accuracy_tables
from safecl.report.templates import make_folder

T = TypeVar("T")


def write_files(folders: Sequence[Path], target: Path) -> list[Path]:
    """Write every figure and table of the runs into the folder ``target``; gives the files."""
    runs = read_runs(folders)
    make_folder(target)
    written: list[Path] = []
    for name, figure in distinct(all_figures(runs)):
        written += save(figure, target / name)
    for name, table in distinct(all_tables(runs)):
        for kind, text in (("csv", as_csv(table)), ("tex", as_latex(table))):
            written.append(target / f"{name}.{kind}")
            write_bytes(written[-1], text.encode())
    return written


def save(figure: Figure, stem: Path) -> list[Path]:
    """The figure as SVG and PNG, on white."""
    files = [stem.with_name(f"{stem.name}.{kind}") for kind in ("svg", "png")]
    for file in files:
        write_bytes(file, saved(figure, file.suffix[1:]))
    return files


def all_figures(runs: Sequence[Run]) -> Iterator[tuple[str, Figure]]:
    """The figures of a page by file name, with titles and legends of their own."""
    choice = choose(runs)
    shown, detailed = [one for one in choice.best if one.pooled], choice.detailed
    if shown:
        yield "accuracy", figures.accuracy_curves([one for one in choice.series if one.pooled])
        yield "sessions", figures.session_bars([one for one in choice.barred if one.pooled])
    single = [*panels.matrices(shown), *panels.validations(shown), *panels.kept(shown), *panels.losses(detailed)]
    single += [*panels.times(detailed), *panels.aggregation(detailed), *panels.confusions(detailed)]
    for panel in (*single, *(panel for _, maps, _ in panels.feature_maps(detailed) for panel in maps)):
        yield slug(panel.file), panel.draw()


def all_tables(runs: Sequence[Run]) -> Iterator[tuple[str, Table]]:
    """The tables of a page by file name."""
    choice = choose(runs)
    for table in accuracy_tables(choice.listed):
        yield slug(table.title), table
    begun = [one for one in choice.mains if one.run.metrics]
    if begun:
        yield "costs", run_tables.kept(begun)
    yield "versions", run_tables.environments([(one.run, one.name) for one in choice.mains])
    makers = {"decisions": run_tables.decisions, "confused": run_tables.confused, "classes": run_tables.by_class}
    for run, title in choice.detailed:
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
