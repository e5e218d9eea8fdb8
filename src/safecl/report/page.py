"""The page of one or several runs, from their folders."""

from collections.abc import Sequence
from pathlib import Path

from safecl.errors import SafeclError
from safecl.report import gallery, panels, sentences, tables, words
from safecl.report.answers import no_map
from safecl.report.colours import variable
from safecl.report.runs import Run, read_run
from safecl.report.series import Series, stream_key
from safecl.report.table import Table
from safecl.report.templates import Tile, make_folder, render, write

MAX_CLASSES = 60  # of a session, spelt out in the list of sessions


def write_page(folders: Sequence[Path], target: Path, title: str, first: Sequence[Table] = ()) -> Path:
    """Draw the runs in ``folders`` into the one HTML file ``target``. ``first``: tables before the other numbers."""
    html = _page(read_runs(folders), title, first)
    make_folder(Path(target).parent)
    return write(Path(target), html)


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
        subject=_subject(runs),
        every_run=[(run, panels.seeded(one, run)) for one in mains for run in one.runs],
        caveats=sentences.caveats(runs),
        results=_result_tiles(choice.series, alone=len(mains) == 1),
        facts=_fact_tiles([one.run for one in mains]),
        curves=panels.curves([one for one in choice.series if one.pooled]),
        domain=any(run.domain for run in runs),
        any_future=any(run.done < len(row) for run in runs if run.last for row in run.last.accuracy.values()),
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
        streams=_streams(runs),
        commands=list(dict.fromkeys(run.command for run in runs if run.command)),
        environments=tables.environments([(one.run, one.name) for one in mains]),
        files=detailed,
        versions=sorted({run.facts.version for run in runs if run.facts.version}),
    )


def _subject(runs: Sequence[Run]) -> str:
    """What the page is about, in one line."""
    facts = runs[0].facts
    same = all(run.facts.stream.name == facts.stream.name for run in runs)
    kind = words.protocol(facts.stream.protocol)
    parts = [f"{facts.stream.name} stream", kind] if same else [sentences.runs_on_streams(runs)]
    if facts.backbone.name and all(run.facts.backbone.name == facts.backbone.name for run in runs):
        parts.append(f"backbone {facts.backbone.name}")
    return " · ".join(parts)


def _result_tiles(series: Sequence[Series], alone: bool) -> list[Tile]:
    """One for each method with what it trains and keeps, or for a single run one for each of its outputs."""
    tiles = []
    for one in series:
        if (one.main or alone) and one.final is not None:
            over = f" over {words.plural(len(one.runs), 'seed')}" if one.deviation("final_seen") is not None else ""
            lost = f"forgot {words.points(one.forgetting)} points"
            lost = "nothing to forget yet" if one.forgetting is None else lost
            parts = [f"{sentences.plus_minus(one, 'final_seen')}{over}", lost]
            parts += [f"on all domains {words.percent(one.final)}"] if one.final != one.final_seen else []
            parts += [words.duration(sum(value for _, value in one.seconds))] if one.main else []
            if not alone:
                learnable, kept = one.run.parameters.learnable, one.run.last.bytes_kept if one.run.last else None
                parts += [f"{words.count(learnable)} learnable"] if learnable is not None else []
                parts += [f"{words.size(kept)} kept"] if kept is not None else []
            tiles.append(Tile(words.percent(one.final_seen), one.name, " · ".join(parts), variable(one.colour.light)))
    return tiles


def _fact_tiles(runs: Sequence[Run]) -> list[Tile]:
    """What holds for all runs: the stream, the device; and what a single run trains and keeps."""
    run, tiles = runs[0], []
    if len({stream_key(each) for each in runs}) == 1:
        done = max(each.done for each in runs)
        classes = max(each.classes for each in runs)
        tiles.append(Tile(f"{done}" if done == run.total else f"{done}/{run.total}", "sessions", "learned one by one"))
        tiles.append(Tile(words.count(classes), "classes", "told apart at once"))
    if len(runs) == 1 and run.parameters.learnable is not None:
        tiles.append(Tile(words.count(run.parameters.learnable), "learnable parameters", run.facts.pet or ""))
    if len(runs) == 1 and run.last is not None and run.last.bytes_kept is not None:
        tiles.append(Tile(words.size(run.last.bytes_kept), "kept between sessions", "statistics and small weights"))
    if run.facts.device and len({(each.facts.device, each.facts.hardware) for each in runs}) == 1:
        tiles.append(Tile(run.facts.device, "device", run.facts.hardware))
    return tiles


def _streams(runs: Sequence[Run]) -> list[tuple[str, list[tuple[str, list[str], int]]]]:
    """For each distinct stream: its name, and its sessions with their first classes and how many more there are."""
    first = {run.facts.stream.name: run.facts.stream.sessions for run in reversed(runs)}
    return [
        (name, [(s.name, s.classes[:MAX_CLASSES], max(0, len(s.classes) - MAX_CLASSES)) for s in first[name]])
        for name in dict.fromkeys(run.facts.stream.name for run in runs)
    ]
