"""One self-contained HTML page from one or more run folders: no network, light and dark, for screens and for paper."""

import base64
import hashlib
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import jinja2
from markupsafe import Markup

from safecl.atomic import write_bytes
from safecl.errors import SafeclError
from safecl.report import gallery, panels, run_tables, tables, words
from safecl.report.answers import no_map
from safecl.report.drawing import PALETTE
from safecl.report.fold import Folded, folded
from safecl.report.runs import Run, read_run
from safecl.report.series import Series, alike, display, stream_key
from safecl.report.svg import theme, variable

MAX_CLASSES = 60  # of a session, spelt out in the list of sessions
DRAWN = len(PALETTE)  # configurations with curves, bars and a matrix: each has a colour of its own
DETAILED = 6  # of them, those with figures and pictures of their own
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Tile:
    """A number worth a big letter, and what it is."""

    value: str
    name: str
    note: str
    colour: str = ""


def write_page(folders: Sequence[Path], target: Path, title: str, first: Sequence[tables.Table] = ()) -> Path:
    """Draw the runs in ``folders`` into the one HTML file ``target``, which appears whole or not at all.

    ``first``: tables that stand before the other numbers.
    """
    html = render(read_runs(folders), title, first)
    target = Path(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SafeclError(f"{target.parent} cannot be made ({error.strerror}); choose another place.") from error
    write_bytes(target, html.encode())
    return target


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """The runs in ``folders``, of which there must be one at least."""
    if not folders:
        raise SafeclError("There is no run to show; give at least one run folder.")
    return [read_run(Path(folder)) for folder in folders]


def render(runs: Sequence[Run], title: str, first: Sequence[tables.Table] = ()) -> str:
    """The page's HTML."""
    every = folded(runs)
    mains = [one for one in every if one.main]
    named = [(one.run, one.name) for one in mains]
    twins = alike(every)
    shown, crowded = best(mains, DRAWN), len(mains) > DRAWN
    if crowded:
        shown = [replace(one, colour=colour) for one, colour in zip(shown, PALETTE, strict=True)]
    drawn = {id(one.run) for one in shown}
    parts = [one for one in every if id(one.run) in drawn and not any(one is twin for twin in twins)]
    series = shown if crowded else parts
    chosen = best(mains, DETAILED)
    detailed = [(one.runs[0], seeded(one)) for one in chosen]
    pictured = {id(one.run) for one in chosen}
    listed = mains if crowded else every
    script = (HERE / "page.js").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html").render(
        title=title,
        theme=Markup(theme()),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        colour=lambda one: variable(one.colour.light),
        words=words,
        subject=_subject(runs),
        headline=words.headline(mains),
        progress=[*words.progress(*_unfinished(mains)), *words.caveats(runs)],
        same=[_same(run, name, [one for one in twins if one.run is run]) for run, name in named if not crowded],
        left_out=_left_out(len(mains)),
        left_out_details=_left_out_details(len(mains)),
        tiles=_result_tiles(series, alone=len(mains) == 1),
        small_tiles=_fact_tiles([one.run for one in mains]),
        series=series,
        seeds=words.seeds(mains),
        tested=words.tested(every),
        domain=any(run.facts.stream.protocol == "domain" for run in runs),
        any_tested=any(one.pooled for one in series),
        curves=panels.curves([one for one in series if one.pooled]),
        covered=words.covered(series),
        remembered=words.remembered(shown) if not crowded else "",
        any_future=any(run.done < len(row) for run in runs if run.last for row in run.last.accuracy.values()),
        bars=panels.bars(series if len(mains) <= DETAILED else shown),
        matrices=panels.matrices(series if len(mains) == 1 else shown),
        validations=panels.validations(shown),
        numbers=[*first, *accuracy_tables(listed)],
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
        cards=gallery.cards([one.members[0] for one in every if id(one.run) in pictured]),
        losses=panels.losses(detailed),
        loss_tables=[run_tables.losses(run, name) for run, name in detailed if run.losses],
        times=panels.times(detailed),
        kept=panels.kept(shown),
        kept_table=run_tables.kept([one for one in mains if one.run.metrics]),
        costs=[run_tables.costs(run, name) for run, name in detailed if run.metrics],
        streams=_streams(runs),
        commands=list(dict.fromkeys(filter(None, (_command(run) for run in runs)))),
        environments=run_tables.environments([(one.run, one.name) for one in mains]),
        files=detailed,
        versions=sorted({run.facts.version for run in runs if run.facts.version}),
    )


def best(series: Sequence[Folded], most: int) -> list[Folded]:
    """At most ``most`` of the methods' own outputs, those with the highest final accuracy, in their order."""
    mains = [one for one in series if one.main]
    chosen = {id(one) for one in sorted(mains, key=lambda one: -(one.final_seen or 0.0))[:most]}
    return [one for one in mains if id(one) in chosen]


def seeded(one: Folded) -> str:
    """The name of a configuration's first run: which seed it is, where there are several."""
    return one.name if len(one.runs) == 1 else f"{one.name} (seed {one.runs[0].facts.seed})"


def _left_out(configurations: int) -> str:
    if configurations <= DRAWN:
        return ""
    return f"The figures show the {DRAWN} of {configurations} configurations that are best at the end, the tables all."


def _left_out_details(configurations: int) -> str:
    if configurations <= DETAILED:
        return ""
    return f"Of the {DETAILED} that are best at the end; safecl report RUN draws any other."


def _unfinished(mains: Sequence[Folded]) -> tuple[list[Run], list[str]]:
    """Every run with a name of its own."""
    found = [(run, one) for one in mains for run in one.runs]
    names = [one.name if len(one.runs) == 1 else f"{one.name} (seed {run.facts.seed})" for run, one in found]
    return [run for run, _ in found], names


def _tables(make: Callable[[Run, str], tables.Table | None], named: Sequence[tuple[Run, str]]) -> list[tables.Table]:
    made = [make(run, name) for run, name in named]
    return [table for table in made if table is not None]


def accuracy_tables(series: Sequence[Series]) -> list[tables.Table]:
    """The tables of accuracies; none where none was measured."""
    if not any(one.pooled or one.validation for one in series):
        return []
    return [tables.at_the_end(series), *tables.after_each_session(series)]


def _same(run: Run, name: str, twins: Sequence[Series]) -> str:
    """Why parts of a method are not drawn beside it; empty where they are."""
    if not twins:
        return ""
    parts = words.listed([display(one.output) for one in twins])
    verb = "have" if len(twins) > 1 else "has"
    return f"{name}: {parts} {verb} the method's own accuracy after every session. {words.same(run)}"


def _subject(runs: Sequence[Run]) -> str:
    """What the page is about, in one line."""
    facts = runs[0].facts
    kind = words.protocol(facts.stream.protocol)
    same = all(run.facts.stream.name == facts.stream.name for run in runs)
    parts = [f"{facts.stream.name} stream", kind] if same else [words.runs_on_streams(runs)]
    if facts.backbone.name and all(run.facts.backbone.name == facts.backbone.name for run in runs):
        parts.append(f"backbone {facts.backbone.name}")
    return " · ".join(parts)


def _result_tiles(series: Sequence[Series], alone: bool) -> list[Tile]:
    """A method each, or for a single run each of its outputs."""
    tiles = []
    for one in series:
        if (one.main or alone) and one.final is not None:
            lost = (
                f"forgot {words.points(one.forgetting)} points"
                if one.forgetting is not None
                else "nothing to forget yet"
            )
            seconds = sum(value for _, value in one.seconds)
            time = f" · {words.duration(seconds)}" if one.main else ""
            ahead = f" · on all domains {words.percent(one.final)}" if one.final != one.final_seen else ""
            over = f" over {words.plural(len(one.runs), 'seed')}" if one.deviation("final_seen") is not None else ""
            note = (
                f"{words.plus_minus(one, 'final_seen')}{over} · {lost}{ahead}{time}{'' if alone else _sizes(one.run)}"
            )
            tiles.append(Tile(words.percent(one.final_seen), one.name, note, variable(one.colour.light)))
    return tiles


def _sizes(run: Run) -> str:
    """What a method trains and keeps, on its own card where methods are compared."""
    learnable, kept = run.parameters.learnable, run.last.bytes_kept if run.last else None
    parts = [f"{words.count(learnable)} learnable"] if learnable is not None else []
    parts += [f"{words.size(kept)} kept"] if kept is not None else []
    return "".join(f" · {part}" for part in parts)


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
    result: dict[str, list[tuple[str, list[str], int]]] = {}
    for run in runs:
        sessions = run.facts.stream.sessions
        result.setdefault(
            run.facts.stream.name,
            [(s.name, s.classes[:MAX_CLASSES], max(0, len(s.classes) - MAX_CLASSES)) for s in sessions],
        )
    return list(result.items())


def _command(run: Run) -> str:
    command = run.facts.command
    return command if isinstance(command, str) else shlex.join(command or [])
