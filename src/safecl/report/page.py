"""The page of one or several runs, from their folders; and what it shows as files: SVG and PNG, CSV
and LaTeX.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TypeVar

from matplotlib.figure import Figure

from safecl.lines import slug
from safecl.outputs import write_output
from safecl.report import gallery, panels, sentences, tables
from safecl.report.colours import variable
from safecl.report.drawing import saved
from safecl.report.runs import Run, read_run
from safecl.report.series import stream_key
from safecl.report.table import Table, as_csv, as_latex
from safecl.report.templates import make_folder, render, write

T = TypeVar("T")


def write_page(
    folders: Sequence[Path],
    target: Path,
    title: str,
    first: Sequence[Table] = (),
    *,
    force: bool | None = None,
) -> Path:
    """Draw the runs in ``folders`` into the one HTML file ``target``. ``first``: tables before the
    other numbers.
    """
    runs = read_runs(folders)
    choice = panels.choose(runs)
    mains = choice.mains
    found = all_tables(choice)
    answering = [
        one for one in choice.every if any(one.runs == each.runs for each in choice.chosen)
    ]
    html = render(
        "run.html",
        title=title,
        choice=choice,
        most_drawn=panels.DRAWN,
        most_detailed=panels.DETAILED,
        sentences=sentences,
        colour=lambda one: variable(one.colour.light),
        runs=runs,
        every_run=[(run, panels.seeded(one, run)) for one in mains for run in one.runs],
        one_stream=len({stream_key(one.run) for one in mains}) == 1,
        devices={(one.run.facts.device, one.run.facts.hardware) for one in mains},
        curves=panels.curves([one for one in choice.series if one.pooled]),
        drawn=panels.all_panels(choice),
        numbers=[*first, *found["accuracy"]],
        tables=found,
        cards={why: gallery.cards(answering, why) for why in ("chance", "pair", "apart")},
        streams={run.facts.stream.name: run.facts.stream.sessions for run in reversed(runs)},
        files=choice.detailed,
    )
    make_folder(target.parent)
    return write(target, html, force=force)


def read_runs(folders: Sequence[Path]) -> list[Run]:
    return [read_run(Path(folder)) for folder in folders]


def write_files(folders: Sequence[Path], target: Path) -> list[Path]:
    """Write every figure and table of the runs into the folder ``target``; gives the files."""
    runs = read_runs(folders)
    make_folder(target)
    written: list[Path] = []
    for name, figure in distinct(all_figures(runs)):
        written += save(figure, target / name)
    every = [
        (kind, table) for kind, some in all_tables(panels.choose(runs)).items() for table in some
    ]
    for name, table in distinct((slug(f"{kind} {table.title}"), table) for kind, table in every):
        texts = {"csv": as_csv(table), "tex": as_latex(table)}
        written += [write(target / f"{name}.{kind}", text, kind) for kind, text in texts.items()]
    return written


def save(figure: Figure, stem: Path) -> list[Path]:
    """The figure as SVG and PNG, on white."""
    files = [stem.with_name(f"{stem.name}.{kind}") for kind in ("svg", "png")]
    for file in files:
        write_output(file, saved(figure, file.suffix[1:]), file.suffix[1:])
    return files


def all_figures(runs: Sequence[Run]) -> Iterator[tuple[str, Figure]]:
    """The figures of a page by file name, with titles and legends of their own."""
    choice = panels.choose(runs)
    if drawn := [one for one in choice.series if one.pooled]:
        yield "accuracy", replace(panels.curves(drawn)["narrow"], size=(5.6, 3.2)).figure()
    for panel in chain.from_iterable(panels.all_panels(choice).values()):
        yield slug(panel.file), panel.figure()


def all_tables(choice: panels.Choice) -> dict[str, list[Table]]:
    """By kind: the numbers and the costs of all runs, then those of single ones."""
    begun = [one for one in choice.mains if one.run.metrics]
    found = {
        "accuracy": tables.accuracy_tables(choice.listed),
        "costs": [tables.kept(begun)] if begun else [],
    }
    for kind, make in tables.OF_A_RUN.items():
        found[kind] = [table for run, name in choice.detailed if (table := make(run, name))]
    return found


def distinct(named: Iterable[tuple[str, T]]) -> Iterator[tuple[str, T]]:
    """With a number behind a name that was there before."""
    taken: Counter[str] = Counter()
    for name, thing in named:
        taken[name] += 1
        yield name if taken[name] == 1 else f"{name}-{taken[name]}", thing
