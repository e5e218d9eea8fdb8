"""The page of one or several runs, from their folders."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from safecl.errors import SafeclError
from safecl.report import gallery, panels, run_tables, sentences, words
from safecl.report.answers import no_map
from safecl.report.colours import PALETTE, variable
from safecl.report.runs import Run, read_run
from safecl.report.series import Series, alike, display, folded, stream_key
from safecl.report.table import Table
from safecl.report.tables import accuracy_tables
from safecl.report.templates import Tile, make_folder, render, write

MAX_CLASSES = 60  # of a session, spelt out in the list of sessions
DRAWN = len(PALETTE)  # configurations with curves, bars and a matrix: each has a colour of its own
DETAILED = 6  # of them, those with figures and pictures of their own


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


@dataclass(frozen=True)
class Choice:
    """What is shown of any number of runs.

    ``every``: all outputs of all configurations, ``mains``: the methods' own; ``best``: those of them that are drawn;
    ``series``: what is drawn of these; ``chosen``: those with figures of their own, of their first seeds.
    """

    every: list[Series]
    mains: list[Series]
    twins: list[Series]
    best: list[Series]
    series: list[Series]
    chosen: list[Series]

    @property
    def crowded(self) -> bool:
        return len(self.mains) > DRAWN

    @property
    def listed(self) -> list[Series]:
        """What tables hold."""
        return self.mains if self.crowded else self.every

    @property
    def barred(self) -> list[Series]:
        """What has bars by session."""
        return self.series if len(self.mains) <= DETAILED else self.best

    @property
    def detailed(self) -> list[tuple[Run, str]]:
        return [(one.runs[0], _seeded(one, one.runs[0])) for one in self.chosen]


def choose(runs: Sequence[Run]) -> Choice:
    """All there is of a few runs; of many the best."""
    every = folded(runs)
    mains, twins = [one for one in every if one.main], alike(every)
    best = _best(mains, DRAWN)
    if len(mains) > DRAWN:
        best = [replace(one, colour=colour) for one, colour in zip(best, PALETTE, strict=True)]
        return Choice(every, mains, twins, best, best, _best(mains, DETAILED))
    series = [one for one in every if not any(one is twin for twin in twins)]
    return Choice(every, mains, twins, best, series, _best(mains, DETAILED))


def _best(mains: Sequence[Series], most: int) -> list[Series]:
    """At most ``most``, those with the highest final accuracy, in their order."""
    chosen = {id(one) for one in sorted(mains, key=lambda one: -(one.final_seen or 0.0))[:most]}
    return [one for one in mains if id(one) in chosen]


def _page(runs: Sequence[Run], title: str, first: Sequence[Table]) -> str:
    choice = choose(runs)
    mains, series, detailed, count = choice.mains, choice.series, choice.detailed, len(choice.mains)
    left_out, left_out_details = "", ""
    if choice.crowded:
        left_out = f"The figures show the {DRAWN} of {count} configurations that are best at the end, the tables all."
    if count > DETAILED:
        left_out_details = f"Of the {DETAILED} that are best at the end; safecl report RUN draws any other."
    return render(
        "run.html",
        title=title,
        colour=lambda one: variable(one.colour.light),
        measured=sentences.measured,
        subject=_subject(runs),
        headline=sentences.headline(mains),
        progress=[
            *sentences.progress([(run, _seeded(one, run)) for one in mains for run in one.runs]),
            *sentences.caveats(runs),
        ],
        same=[] if choice.crowded else [_same(one, choice.twins) for one in mains],
        left_out=left_out,
        left_out_details=left_out_details,
        results=_result_tiles(series, alone=count == 1),
        facts=_fact_tiles([one.run for one in mains]),
        series=series,
        seeds=sentences.seeds(mains),
        tested=sentences.tested(choice.every),
        domain=any(run.facts.stream.protocol == "domain" for run in runs),
        any_tested=any(one.pooled for one in series),
        curves=panels.curves([one for one in series if one.pooled]),
        covered=sentences.covered(series),
        remembered="" if choice.crowded else sentences.remembered(choice.best),
        any_future=any(run.done < len(row) for run in runs if run.last for row in run.last.accuracy.values()),
        bars=panels.bars([one for one in choice.barred if one.pooled]),
        matrices=panels.matrices([one for one in (series if count == 1 else choice.best) if one.pooled]),
        validations=panels.validations(choice.best),
        numbers=[*first, *accuracy_tables(choice.listed)],
        decisions=_tables(run_tables.decisions, detailed),
        weights=panels.aggregation(detailed),
        maps=panels.feature_maps(detailed),
        no_maps=[f"{name}: {reason}." for run, name in detailed if (reason := no_map(run))],
        confusions=panels.confusions(detailed),
        pairs=[(name, found) for run, name in detailed if (found := gallery.confused_pairs(run))],
        confused=_tables(run_tables.confused, detailed),
        by_class=_tables(run_tables.by_class, detailed),
        bad=[(name, gallery.bad_classes(run)) for run, name in detailed if run.predictions],
        right=[name for run, name in detailed if run.predictions and not gallery.bad_classes(run)],
        cards=gallery.cards([one for one in choice.every if any(one.runs == each.runs for each in choice.chosen)]),
        losses=panels.losses(detailed),
        loss_tables=[run_tables.losses(run, name) for run, name in detailed if run.losses],
        times=panels.times(detailed),
        kept=panels.kept(choice.best),
        kept_table=run_tables.kept([one for one in mains if one.run.metrics]),
        costs=[run_tables.costs(run, name) for run, name in detailed if run.metrics],
        streams=_streams(runs),
        commands=list(dict.fromkeys(filter(None, (_command(run) for run in runs)))),
        environments=run_tables.environments([(one.run, one.name) for one in mains]),
        files=detailed,
        versions=sorted({run.facts.version for run in runs if run.facts.version}),
    )


def _seeded(one: Series, run: Run) -> str:
    """The name of one of a configuration's runs: which seed it is, where there are several."""
    return one.name if len(one.runs) == 1 else f"{one.name} (seed {run.facts.seed})"


def _tables(make: Callable[[Run, str], Table | None], named: Sequence[tuple[Run, str]]) -> list[Table]:
    return [table for run, name in named if (table := make(run, name)) is not None]


def _same(main: Series, twins: Sequence[Series]) -> str:
    """Why parts of a method are not drawn beside it; empty where they are."""
    mine = [display(one.output) for one in twins if one.runs == main.runs]
    if not mine:
        return ""
    parts = f"{words.listed(mine)} {'have' if len(mine) > 1 else 'has'}"
    return f"{main.name}: {parts} the method's own accuracy after every session. {sentences.same(main.run)}"


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
            lost = "nothing to forget yet"
            parts = [f"{sentences.plus_minus(one, 'final_seen')}{over}"]
            parts.append(lost if one.forgetting is None else f"forgot {words.points(one.forgetting)} points")
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
        classes = max(each.last.classes_seen if each.last else 0 for each in runs)
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


def _command(run: Run) -> str:
    command = run.facts.command
    return command if isinstance(command, str) else shlex.join(command or [])
