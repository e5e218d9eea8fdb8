"""One self-contained HTML page from one or more run folders: no network, no scripts, light and dark."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2
from markupsafe import Markup

from safecl.atomic import write_bytes
from safecl.errors import SafeclError
from safecl.report import figures, gallery, tables, words
from safecl.report.runs import Run, read_run
from safecl.report.series import Series, alike, all_series, display, run_names, stream_key
from safecl.report.svg import inline_svg, theme, variable

# Inches at 72 to the inch are CSS pixels: each figure is drawn near the width at which it will be read.
WIDE, NARROW, PANEL, SQUARE = (12.6, 4.5), (4.3, 3.7), (4.3, 2.9), (4.3, 4.1)
MAX_CLASSES = 60  # of a session, spelt out in the list of sessions


@dataclass(frozen=True)
class Tile:
    """A number worth a big letter, and what it is."""

    value: str
    name: str
    note: str
    colour: str = ""


@dataclass(frozen=True)
class Panel:
    """A small figure under its own name."""

    name: str
    colour: str
    svg: Markup


def write_page(folders: Sequence[Path], target: Path, title: str, first: Sequence[tables.Table] = ()) -> Path:
    """Draw the runs in ``folders`` into the one HTML file ``target``, which appears whole or not at all.

    ``first``: tables that stand before the other numbers.
    """
    if not folders:
        raise SafeclError("There is no run to show; give at least one run folder.")
    html = render([read_run(Path(folder)) for folder in folders], title, first)
    target = Path(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SafeclError(f"{target.parent} cannot be made ({error.strerror}); choose another place.") from error
    write_bytes(target, html.encode())
    return target


def render(runs: Sequence[Run], title: str, first: Sequence[tables.Table] = ()) -> str:
    """The page's HTML."""
    every, names = all_series(runs), run_names(runs)
    mains = [one for one in every if one.main]
    named = list(zip(runs, names, strict=True))
    twins = alike(every)
    series = [one for one in every if one not in twins]  # what is the same is drawn once
    matrices = series if len(runs) == 1 else mains
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html").render(
        title=title,
        theme_light=Markup(theme(dark=False)),
        theme_dark=Markup(theme(dark=True)),
        colour=lambda one: variable(one.colour.light),
        words=words,
        subject=_subject(runs),
        headline=words.headline(series),
        progress=[*words.progress(runs, names), *words.caveats(runs)],
        same=[_same(run, name, [one for one in twins if one.run is run]) for run, name in named],
        tiles=_result_tiles(series, alone=len(runs) == 1),
        small_tiles=_fact_tiles(runs, names),
        series=series,
        tested=words.tested(every),
        domain=any(run.facts.stream.protocol == "domain" for run in runs),
        any_tested=any(one.pooled for one in series),
        curves=_curves([one for one in series if one.pooled]),
        covered=words.covered(series),
        remembered=words.remembered(series),
        any_future=any(run.done < len(row) for run in runs if run.last for row in run.last.accuracy.values()),
        bars=[_panel(one, _bars(one, i)) for i, one in enumerate(series) if one.pooled],
        matrices=[_panel(one, _matrix(one, i)) for i, one in enumerate(matrices) if one.pooled],
        numbers=[*first, *_numbers(every)],
        decisions=_tables(tables.decisions, named),
        confused=_tables(tables.confused, named),
        by_class=_tables(tables.by_class, named),
        bad=[(name, gallery.bad_classes(run)) for run, name in named if run.predictions],
        right=[name for run, name in named if run.predictions and not gallery.bad_classes(run)],
        cards=gallery.cards(every),
        losses=[_loss_panel(run, name, i) for i, (run, name) in enumerate(named) if run.losses],
        loss_tables=[tables.losses(run, name) for run, name in named if run.losses],
        costs=[tables.costs(run, name) for run, name in named if run.metrics],
        streams=_streams(named),
        commands=list(dict.fromkeys(filter(None, (_command(run) for run in runs)))),
        files=named,
        versions=sorted({run.facts.version for run in runs if run.facts.version}),
    )


def _tables(make: Callable[[Run, str], tables.Table | None], named: Sequence[tuple[Run, str]]) -> list[tables.Table]:
    made = [make(run, name) for run, name in named]
    return [table for table in made if table is not None]


def _numbers(series: Sequence[Series]) -> list[tables.Table]:
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
            time = f" · {words.duration(one.run.seconds)}" if one.main else ""
            ahead = f" · on all domains {words.percent(one.final)}" if one.final != one.final_seen else ""
            error = words.spread(one.final_seen, one.run.learned_pictures)
            note = f"{error} · {lost}{ahead}{time}"
            tiles.append(Tile(words.percent(one.final_seen), one.name, note, variable(one.colour.light)))
    return tiles


def _fact_tiles(runs: Sequence[Run], names: Sequence[str]) -> list[Tile]:
    """The measures of the stream, if all runs have the same, and of the first run under its name."""
    run, tiles = runs[0], []
    of = "" if len(runs) == 1 else names[0]
    learnable, last = run.facts.parameters.learnable, run.last
    if len({stream_key(each) for each in runs}) == 1:
        done = max(each.done for each in runs)
        classes = max(each.last.classes_seen if each.last else 0 for each in runs)
        tiles.append(Tile(f"{done}" if done == run.total else f"{done}/{run.total}", "sessions", "learned one by one"))
        tiles.append(Tile(words.count(classes), "classes", "told apart at once"))
    if learnable is not None:
        tiles.append(Tile(words.count(learnable), "learnable parameters", of or (run.facts.pet or "")))
    if last is not None and last.bytes_kept is not None:
        tiles.append(Tile(words.size(last.bytes_kept), "kept between sessions", of or "statistics and small weights"))
    if run.facts.device and len({(each.facts.device, each.facts.hardware) for each in runs}) == 1:
        tiles.append(Tile(run.facts.device, "device", run.facts.hardware))
    return tiles


def _curves(series: Sequence[Series]) -> list[tuple[str, Markup]]:
    """The same curves drawn for a desk and for a phone; the page shows one of them."""
    label = words.curve_label(series)
    sizes = {"wide": WIDE, "narrow": NARROW}
    return [
        (n, inline_svg(figures.accuracy_curves(series, s, legend=False), label, f"curve-{n}")) for n, s in sizes.items()
    ]


def _panel(one: Series, svg: Markup) -> Panel:
    return Panel(one.name, variable(one.colour.light), svg)


def _bars(one: Series, place: int) -> Markup:
    return inline_svg(figures.session_bars([one], PANEL, titles=False), words.bars_label(one), f"bars-{place}")


def _matrix(one: Series, place: int) -> Markup:
    label = f"{one.name}: accuracy on each session's test pictures (columns) after each session (rows), in percent"
    return inline_svg(figures.matrix(one, SQUARE, title=False), label, f"matrix-{place}")


def _loss_panel(run: Run, name: str, place: int) -> tuple[str, list[tuple[str, str]], Markup]:
    """A run's name, its kinds of phases with their colours, and its loss curves."""
    phases = dict.fromkeys(figures.kind_of_phase(line.phase) for line in run.losses)
    keys = [(phase, variable(figures.phase_colour(run, phase).light)) for phase in phases]
    label = f"{name}: training loss over all steps; the numbers are in the table below"
    return name, keys, inline_svg(figures.loss_curves(run, PANEL, legend=False), label, f"loss-{place}")


def _streams(named: Sequence[tuple[Run, str]]) -> list[tuple[str, list[tuple[str, list[str], int]]]]:
    """For each distinct stream: its name, and its sessions with their first classes and how many more there are."""
    result: dict[str, list[tuple[str, list[str], int]]] = {}
    for run, _ in named:
        sessions = run.facts.stream.sessions
        result.setdefault(
            run.facts.stream.name,
            [(s.name, s.classes[:MAX_CLASSES], max(0, len(s.classes) - MAX_CLASSES)) for s in sessions],
        )
    return list(result.items())


def _command(run: Run) -> str:
    command = run.facts.command
    return command if isinstance(command, str) else shlex.join(command or [])
