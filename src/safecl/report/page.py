"""The page of one or several runs, from their folders."""

from collections.abc import Sequence
from pathlib import Path

from safecl.errors import SafeclError
from safecl.report import gallery, panels, sentences, tables
from safecl.report.answers import no_map
from safecl.report.colours import variable
from safecl.report.runs import Run, read_run
from safecl.report.series import stream_key
from safecl.report.table import Table
from safecl.report.templates import make_folder, render, write


def write_page(
    folders: Sequence[Path], target: Path, title: str, first: Sequence[Table] = (), *, force: bool | None = None
) -> Path:
    """Draw the runs in ``folders`` into the one HTML file ``target``. ``first``: tables before the other numbers."""
    html = _page(read_runs(folders), title, first)
    make_folder(Path(target).parent)
    return write(Path(target), html, force=force)


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """The runs in ``folders``, of which there must be one at least."""
    if not folders:
        raise SafeclError("There is no run to show; give at least one run folder.")
    return [read_run(Path(folder)) for folder in folders]


def _page(runs: Sequence[Run], title: str, first: Sequence[Table]) -> str:
    choice = panels.choose(runs)
    mains, detailed = choice.mains, choice.detailed
    return render(
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
        numbers=[*first, *tables.accuracy_tables(choice.listed)],
        tables={
            kind: [table for run, name in detailed if (table := make(run, name))]
            for kind, make in tables.OF_A_RUN.items()
        },
        maps=panels.feature_maps(detailed),
        no_maps=[f"{name}: {reason}." for run, name in detailed if (reason := no_map(run))],
        pairs=[(name, found) for run, name in detailed if (found := gallery.confused_pairs(run))],
        bad=[(name, gallery.bad_classes(run)) for run, name in detailed if run.predictions],
        cards=gallery.cards([one for one in choice.every if any(one.runs == each.runs for each in choice.chosen)]),
        kept=tables.kept([one for one in mains if one.run.metrics]),
        streams={run.facts.stream.name: run.facts.stream.sessions for run in reversed(runs)},
        environments=tables.environments([(one.run, one.name) for one in mains]),
        files=detailed,
    )
