"""The tables of a page: plain text cells under one or two rows of heads."""

from collections.abc import Sequence
from dataclasses import dataclass

from safecl.report import words
from safecl.report.figures import loss_parts
from safecl.report.runs import Metrics, Run
from safecl.report.series import Series


@dataclass(frozen=True)
class Cell:
    """A cell's text; ``best`` marks the best method of its row."""

    text: str
    best: bool = False


@dataclass(frozen=True)
class Group:
    """Columns that belong to one run."""

    name: str
    columns: list[str]


@dataclass(frozen=True)
class Table:
    """A table; each row starts with its head, ``leads`` name the head and the columns before the groups."""

    title: str
    leads: list[str]
    groups: list[Group]
    rows: list[list[Cell]]


def at_the_end(series: Sequence[Series]) -> Table:
    """One row for each series: the measures that papers give."""
    rows: list[list[Cell]] = []
    finals = [one.final for one in series if one.main and one.final is not None]
    best = max(finals) if len(finals) > 1 else None
    for one in series:
        summary = one.run.summary
        bwt = (summary.bwt or {}).get(one.output) if summary else None
        fwt = (summary.fwt or {}).get(one.output) if summary else None
        texts = [one.name, words.percent(one.final), words.percent(one.average), words.points(one.forgetting)]
        cells = [Cell(text) for text in [*texts, words.points(bwt), words.points(fwt)]]
        cells[1] = Cell(cells[1].text, best=one.main and best is not None and one.final == best)
        rows.append(cells)
    leads = ["Output", "Final accuracy", "Average over sessions", "Forgetting", "Backward transfer", "Forward transfer"]
    told = [
        i for i in range(len(leads)) if any(row[i].text != words.NONE for row in rows)
    ]  # a column of dashes tells nothing
    return Table("At the end", [leads[i] for i in told], [], [[row[i] for i in told] for row in rows])


def after_each_session(series: Sequence[Series]) -> list[Table]:
    """Runs on the same stream stand beside each other in one table; each other stream has its own."""
    streams: dict[tuple[str, ...], list[Series]] = {}
    for one in series:
        stream = one.run.facts.stream
        streams.setdefault((stream.name, stream.protocol, *(s.name for s in stream.sessions)), []).append(one)
    title = "After each session, in percent"
    return [_sessions(f"{title} ({key[0]})" if len(streams) > 1 else title, ones) for key, ones in streams.items()]


def costs(run: Run, name: str) -> Table:
    """Where a run's time and memory went."""
    stages = list(dict.fromkeys(stage for line in run.metrics for stage in line.seconds))
    rows = [
        [
            Cell(text)
            for text in [str(line.session), *(words.duration(line.seconds.get(s)) for s in stages), *_usage(line)]
        ]
        for line in run.metrics
    ]
    return Table(name, ["Session", *(s.capitalize() for s in stages), "Pictures/s", "Peak memory", "Kept"], [], rows)


def losses(run: Run, name: str) -> Table:
    """Each phase's loss at its first and last logged step, and the terms of the last."""
    terms = list(dict.fromkeys(term for line in run.losses for term in line.terms))
    rows = []
    for part in loss_parts(run):
        ends = [_loss(part[0].loss), _loss(part[-1].loss), *(_loss(part[-1].terms.get(term)) for term in terms)]
        rows.append([Cell(text) for text in [f"{part[0].session} {part[0].phase}", str(part[-1].step), *ends]])
    return Table(f"{name}: loss", ["Session, phase", "Steps", "First", "Last", *(f"Last {t}" for t in terms)], [], rows)


def _sessions(title: str, series: Sequence[Series]) -> Table:
    runs = {id(one.run): one.run for one in series}
    blocks = [[one for one in series if one.run is run] for run in runs.values()]
    # The parts first, then what the method makes of them.
    blocks = [sorted(block, key=lambda one: one.main) for block in blocks]
    groups = []
    for block in blocks:
        columns = [one.name.split(", ")[-1] if not one.main else "accuracy" for one in block]
        columns = columns if len(block) == 1 else [*columns[:-1], block[-1].name]
        groups.append(Group(block[-1].name, [*columns, "forgot", "time"]))
    measured = {line.session: line for run in runs.values() for line in run.metrics}
    return Table(
        title,
        ["Session", "Classes"],
        groups,
        [_session_row(line, blocks) for _, line in sorted(measured.items())],
    )


def _session_row(session: Metrics, blocks: Sequence[Sequence[Series]]) -> list[Cell]:
    name = f"{session.session}" + (f" · {session.name}" if session.name else "")
    row = [Cell(name), Cell(str(session.classes_seen))]
    mains = [dict(one.pooled).get(session.session) for block in blocks for one in block if one.main]
    best = max((value for value in mains if value is not None), default=None)
    for block in blocks:
        line = next((line for line in block[0].run.metrics if line.session == session.session), None)
        for one in block:
            value = line.pooled.get(one.output) if line else None
            row.append(
                Cell(
                    words.bare_percent(value), best=one.main and len(blocks) > 1 and value is not None and value == best
                )
            )
        lost = line.forgetting.get(block[-1].output) if line and line.session > 1 else None
        row += [Cell(words.points(lost)), Cell(words.duration(line.seconds.get("total") if line else None))]
    return row


def _usage(line: Metrics) -> list[str]:
    return [words.count(line.images_per_second), words.size(line.peak_memory), words.size(line.bytes_kept)]


def _loss(value: float | None) -> str:
    return words.NONE if value is None else f"{value:.4g}"
