"""The tables of a page: plain text cells under one or two rows of heads."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from safecl.report import words
from safecl.report.runs import Metrics, Prediction, Run
from safecl.report.series import Series, display, run_names, stream_key


@dataclass(frozen=True)
class Cell:
    """A cell's text; ``best`` marks the best method of its row or stream, ``label`` the name of a class."""

    text: str
    best: bool = False
    label: bool = False


@dataclass(frozen=True)
class Group:
    """Columns that belong to one run."""

    name: str
    columns: list[str]


@dataclass(frozen=True)
class Table:
    """A table; each row starts with its head, ``leads`` name the head and the columns before the groups.

    ``wordy``: its cells hold names, which may be long.
    """

    title: str
    leads: list[str]
    groups: list[Group]
    rows: list[list[Cell]]
    wordy: bool = False


def at_the_end(series: Sequence[Series]) -> Table:
    """One row for each series: the measures that papers give."""
    rows: list[list[Cell]] = []
    finals: dict[tuple[str, ...], list[float]] = {}  # of each stream
    for one in series:
        if one.main and one.final is not None:
            finals.setdefault(stream_key(one.run), []).append(one.final)
    domains = [one.run.facts.stream.protocol == "domain" for one in series]
    for one, domain in zip(series, domains, strict=True):
        learned = words.percent(one.average_seen) if domain else words.NONE
        texts = [one.name, words.accuracy(one.final, one.run.tested), words.percent(one.average), learned]
        texts += [words.points(value) for value in (one.forgetting, one.backward, one.forward)]
        texts += [words.validated(one), one.run.facts.preset or words.NONE]
        cells = [Cell(text) for text in texts]
        rivals = finals.get(stream_key(one.run), [])
        cells[1] = Cell(cells[1].text, best=one.main and len(rivals) > 1 and one.final == max(rivals))
        rows.append(cells)
    average = "Average over sessions" + (", all domains" if any(domains) else "")
    leads = ["Output", "Final accuracy", average, "Average over sessions, domains learned so far"]
    leads += ["Forgetting", "Backward transfer", "Forward transfer", "Validation", "Preset"]
    told = [i for i in range(len(leads)) if i < 2 or any(row[i].text != words.NONE for row in rows)]
    return Table("At the end", [leads[i] for i in told], [], [[row[i] for i in told] for row in rows])


def after_each_session(series: Sequence[Series]) -> list[Table]:
    """Runs on the same stream stand beside each other in one table; each other stream has its own."""
    streams: dict[tuple[str, ...], list[Series]] = {}
    for one in series:
        streams.setdefault(stream_key(one.run), []).append(one)
    result = []
    for key, ones in streams.items():
        title = f"After each session, in percent{f' ({key[0]})' if len(streams) > 1 else ''}"
        if key[1] == "domain":
            result.append(_sessions(f"{title}: on the domains learned so far", ones, "seen"))
            title += ": on all domains, also those to come"
        result.append(_sessions(title, ones, "pooled"))
        if any(one.validation for one in ones):
            result.append(_sessions(f"{title.partition(':')[0]}: on held-out training pictures", ones, "validation"))
    return result


# What a method notes of its decisions: the head of the column, and a word for yes and one for no.
DECISIONS = {
    "pilots": ("Pilots", "trained", "none"),
    "transfer": ("Transfer loss", "used", "not used"),
    "kept": ("Slow tuning kept", "", ""),
    "released": ("L_cos", "dropped", "used"),
    "average": ("Weight of the session", "", ""),
    "trusted": ("Fast tuning kept", "", ""),
}


def decisions(run: Run, name: str) -> Table | None:
    """What the method decided in each session; None if it noted nothing."""
    keys = list(dict.fromkeys(key for line in run.metrics for key in line.notes))
    if not keys:
        return None
    rows = [
        [Cell(str(line.session)), *(Cell(_decision(key, line.notes.get(key))) for key in keys)] for line in run.metrics
    ]
    return Table(name, ["Session", *(DECISIONS.get(key, (key,))[0] for key in keys)], [], rows)


def _decision(key: str, value: object) -> str:
    if isinstance(value, bool):
        _, yes, no = DECISIONS.get(key, (key, "yes", "no"))
        return yes if value else no
    if isinstance(value, int | float):
        return words.percent(float(value)) if key in DECISIONS else f"{value:.4g}"
    return words.NONE if value is None else str(value)


def confused(run: Run, name: str, most: int = 12) -> Table | None:
    """The pairs of classes that the method's own answer confuses most often; None where there is none."""
    pairs = Counter((one.label, said) for one in run.predictions if (said := _said(run, one)) != one.label)
    if not pairs:
        return None
    tested = Counter(one.label for one in run.predictions)
    rows = [
        [Cell(label, label=True), Cell(said, label=True), Cell(f"{times} of {tested[label]}")]
        for (label, said), times in sorted(pairs.items(), key=lambda item: (-item[1], item[0]))[:most]
    ]
    return Table(name, ["Class", "Taken for", "How often"], [], rows, wordy=True)


def by_class(run: Run, name: str) -> Table | None:
    """The accuracy on each class, the worst first; None where nothing was tested."""
    answers: dict[str, Counter[str]] = {}
    for one in run.predictions:
        answers.setdefault(one.label, Counter())[_said(run, one)] += 1
    rows = []
    for label, said in sorted(answers.items(), key=lambda item: (item[1][item[0]] / item[1].total(), item[0])):
        wrong = [(times, other) for other, times in said.items() if other != label]
        rows.append(
            [
                Cell(label, label=True),
                Cell(words.accuracy(said[label] / said.total(), said.total())),
                Cell(str(said.total())),
                Cell(max(wrong)[1], label=True) if wrong else Cell(words.NONE),
            ]
        )
    leads = ["Class", "Accuracy", "Test pictures", "Most often taken for"]
    return Table(name, leads, [], rows, wordy=True) if rows else None


def _said(run: Run, one: Prediction) -> str:
    return one.predicted.get(run.facts.main, "")


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
    for part in run.loss_parts():
        ends = [_loss(part[0].loss), _loss(part[-1].loss), *(_loss(part[-1].terms.get(term)) for term in terms)]
        rows.append([Cell(text) for text in [f"{part[0].session} {part[0].phase}", str(part[-1].step), *ends]])
    return Table(f"{name}: loss", ["Session, phase", "Steps", "First", "Last", *(f"Last {t}" for t in terms)], [], rows)


def _sessions(title: str, series: Sequence[Series], kind: str) -> Table:
    """``kind`` of accuracy: pooled, seen or validation."""
    runs = {id(one.run): one.run for one in series}
    blocks = [[one for one in series if one.run is run] for run in runs.values()]
    # The parts first, then what the method makes of them.
    blocks = [sorted(block, key=lambda one: one.main) for block in blocks]
    groups = []
    for block, name in zip(blocks, run_names(list(runs.values())), strict=True):  # told apart within this table
        parts = [display(one.output) for one in block[:-1]]
        whole = name.partition(" (")[0] if parts else "accuracy"
        groups.append(Group(name, [*parts, whole, "forgot", "time"]))
    measured = {line.session: line for run in runs.values() for line in run.metrics}
    return Table(
        title,
        ["Session", "Classes"],
        groups,
        [_session_row(line, blocks, kind) for _, line in sorted(measured.items())],
    )


def _session_row(session: Metrics, blocks: Sequence[Sequence[Series]], kind: str) -> list[Cell]:
    name = f"{session.session}" + (f" · {session.name}" if session.name else "")
    row = [Cell(name), Cell(str(session.classes_seen))]
    values = [[dict(getattr(one, kind)).get(session.session) for one in block] for block in blocks]
    best = max((block[-1] for block in values if block[-1] is not None), default=None)
    for block, found in zip(blocks, values, strict=True):
        line = next((line for line in block[0].run.metrics if line.session == session.session), None)
        for one, value in zip(block, found, strict=True):
            first = one.main and len(blocks) > 1 and value is not None and value == best
            row.append(Cell(words.bare_percent(value), best=first))
        lost = line.forgetting.get(block[-1].output) if line and line.session > 1 else None
        row += [Cell(words.points(lost)), Cell(words.duration(line.seconds.get("total") if line else None))]
    return row


def _usage(line: Metrics) -> list[str]:
    return [words.count(line.images_per_second), words.size(line.peak_memory), words.size(line.bytes_kept)]


def _loss(value: float | None) -> str:
    return words.NONE if value is None else f"{value:.4g}"
