"""The tables of runs: accuracies, decisions, confusions, time, memory."""

from collections import Counter
from collections.abc import Sequence

from safecl.report import sentences, words
from safecl.report.runs import Metrics, Run, kind_of_phase
from safecl.report.series import Series, by_stream, stream_key
from safecl.report.table import Cell, Table, make_table, numbers
from safecl.settings import flatten

MAX_WITH_PARTS = 3  # runs in a table by session whose parts have rows, too
# What a method notes of its decisions: the head of the column, and a word for yes and one for no.
DECISIONS = {
    "pilots": ("Pilots", "trained", "none"),
    "transfer": ("Transfer loss", "used", "not used"),
    "kept": ("Tuning kept", "", ""),
    "untuned": ("Beside the fast learner", "untuned backbone", "slow learner"),
    "helps": ("Fast learner on new pictures", "helps", "not counted"),
    "released": ("L_cos", "dropped", "used"),
    "average": ("Weight of the session", "", ""),
}


def accuracy_tables(series: Sequence[Series]) -> list[Table]:
    """All of them; none where nothing was measured."""
    if not any(one.pooled or one.validation for one in series):
        return []
    return [at_the_end(series), *after_each_session(series)]


def at_the_end(series: Sequence[Series]) -> Table:
    """One row for each series: the measures that papers give; a column only where one has a
    number.
    """
    rows: list[list[Cell]] = []
    streams = by_stream(one for one in series if one.main and one.final is not None)
    domains = [one.run.domain for one in series]
    several = any(len(one.runs) > 1 for one in series)
    metrics = list(dict.fromkeys(name for one in series for name in one.metrics))
    for one, domain in zip(series, domains, strict=True):
        rivals = streams.get(stream_key(one.run), [])
        best = (
            one.main
            and len(rivals) > 1
            and one.final == max(rival.final or 0.0 for rival in rivals)
        )
        cells = [Cell(one.name), _measured(one, "final", best)]
        cells.append(Cell(str(len(one.runs)) if several else words.NONE, value=len(one.runs)))
        cells += numbers(words.percent, one.average, one.average_seen if domain else None)
        cells += numbers(words.points, one.forgetting)
        cells += numbers(_number, *(one.metrics.get(name) for name in metrics))
        rows.append([*cells, _measured(one, "final_validation")])
    average = "Average over sessions" + (", all domains" if any(domains) else "")
    heads = [
        "Output",
        "Final accuracy",
        "Seeds",
        average,
        "Average over sessions, domains learned so far",
    ]
    heads += ["Forgetting", *map(_head, metrics), "Validation"]
    return make_table("At the end", heads, rows).filled()


def _measured(one: Series, kind: str, best: bool = False) -> Cell:
    return Cell(
        sentences.measured(one, kind),
        best,
        value=getattr(one, kind),
        spread=sentences.spread(one, kind),
    )


def after_each_session(series: Sequence[Series]) -> list[Table]:
    """Runs on the same stream stand in one table; each other stream has its own."""
    result = []
    streams = by_stream(series)
    for key, ones in streams.items():
        title = f"After each session, in percent{f' ({key[0]})' if len(streams) > 1 else ''}"
        mains = [one for one in ones if one.main]
        ones = mains if len(mains) > MAX_WITH_PARTS else ones
        if key[1] == "domain":
            result.append(_sessions(f"{title}: on the domains learned so far", ones, "seen"))
            title += ": on all domains, also those to come"
        result.append(_sessions(title, ones, "pooled"))
        if any(one.validation for one in ones):
            result.append(
                _sessions(
                    f"{title.partition(':')[0]}: on held-out training pictures", ones, "validation"
                )
            )
    return result


def _sessions(title: str, series: Sequence[Series], kind: str) -> Table:
    """A row for each output, a column for each session; ``kind`` of accuracy: pooled, seen or
    validation.
    """
    lines = {line.session: line for one in series for line in one.run.metrics}
    curves = [dict(getattr(one, kind)) for one in series]
    mains = [curve for one, curve in zip(series, curves, strict=True) if one.main]
    rows = []
    for one, curve in zip(series, curves, strict=True):
        cells = [Cell(one.name)]
        for session in sorted(lines):
            value = curve.get(session)
            most = max((each[session] for each in mains if session in each), default=None)
            best = one.main and len(mains) > 1 and value is not None and value == most
            cells.append(Cell(words.bare_percent(value), best, value=value))
        rows.append(cells)
    named = series[0].run.facts.stream.protocol != "class"  # by their domains
    heads = [f"{i} · {line.name}" if named else str(i) for i, line in sorted(lines.items())]
    return make_table(title, ["Session", *heads], rows)


def decisions(run: Run, name: str) -> Table | None:
    """What the method noted of its decisions in each session; None if it noted nothing."""
    noted = [(str(line.session), flatten(line.notes)) for line in run.metrics]
    keys = list(dict.fromkeys(key for _, notes in noted for key in notes))
    # Of keys that are not known here, their own words.
    heads = [DECISIONS[key][0] if key in DECISIONS else _head(key) for key in keys]
    rows = [
        [Cell(session), *(_decision(key, notes.get(key)) for key in keys)]
        for session, notes in noted
    ]
    return make_table(name, ["Session", *heads], rows) if keys else None


def _head(key: str) -> str:
    """Somebody's own name for a number, as the head of a column."""
    return words.upper_first(key.replace("_", " ").replace(".", ": "))


def _number(value: float | None) -> str:
    return words.NONE if value is None else f"{value:.4g}"


def _decision(key: str, value: object) -> Cell:
    if isinstance(value, bool):
        _, yes, no = DECISIONS.get(key, (key, "yes", "no"))
        return Cell(yes if value else no, value=float(value))
    if isinstance(value, int | float):
        return Cell(
            words.percent(float(value)) if key in DECISIONS else f"{value:.4g}", value=float(value)
        )
    if isinstance(value, list | tuple):
        return Cell(", ".join(_decision("", one).text for one in value))
    return Cell(words.NONE if value is None else str(value))


def by_class(run: Run, name: str) -> Table | None:
    """The accuracy on each class, the worst first; None where nothing was tested."""
    answers: dict[str, Counter[str]] = {}
    for one in run.predictions:
        answers.setdefault(one.label, Counter())[run.said(one)] += 1
    rows = []
    for label, given in sorted(
        answers.items(), key=lambda item: (item[1][item[0]] / item[1].total(), item[0])
    ):
        wrong = [(times, other) for other, times in given.items() if other != label]
        pictures = given.total()
        share = given[label] / given.total()
        cells = [Cell(label, label=True), Cell(words.accuracy(share, pictures), value=share)]
        cells += numbers(words.count, pictures)
        rows.append([*cells, Cell(max(wrong)[1], label=True) if wrong else Cell(words.NONE)])
    heads = ["Class", "Accuracy", "Test pictures", "Most often confused with"]
    return make_table(name, heads, rows, words=heads[3:]) if rows else None


def costs(run: Run, name: str) -> Table | None:
    """Where a run's time and memory went; None where no session is finished."""
    seconds = [_seconds(line) for line in run.metrics]
    kinds = [kind_of_phase(phase.phase) for line in run.metrics for phase in line.phases]
    stages = list(dict.fromkeys([*kinds, *(stage for found in seconds for stage in found)]))
    rows = []
    for line, found in zip(run.metrics, seconds, strict=True):
        cells = [Cell(str(line.session)), *numbers(words.duration, *map(found.get, stages))]
        cells += numbers(words.count, line.images_per_second)
        rows.append(cells + numbers(words.size, line.peak_memory, line.bytes_kept))
    heads = ["Session", *(s.capitalize() for s in stages), "Pictures/s", "Peak memory", "Kept"]
    return make_table(name, heads, rows) if rows else None


def _seconds(line: Metrics) -> dict[str, float | None]:
    """Of a session, by kind of phase and by stage; the phases stand in place of "fit"."""
    found: dict[str, float | None] = {}
    for phase in line.phases:
        kind = kind_of_phase(phase.phase)
        found[kind] = (found.get(kind) or 0.0) + (phase.seconds or 0.0)
    return found | {
        stage: value for stage, value in line.seconds.items() if stage != "fit" or not found
    }


def kept(series: Sequence[Series]) -> Table:
    """What each method trains and keeps, and what it took: time and peak over all sessions."""
    rows = []
    for one in series:
        run = one.run
        first = one.run.metrics[0]
        last = one.run.metrics[-1]
        peak = max(
            (line.peak_memory for line in run.metrics if line.peak_memory is not None), default=None
        )
        cells = [
            Cell(one.name),
            *numbers(words.count, run.parameters.learnable, run.parameters.stored),
        ]
        cells += numbers(words.size, first.bytes_kept, last.bytes_kept, peak)
        rows.append(cells + numbers(words.duration, one.time))
    heads = ["Run", "Learnable numbers", "Numbers kept", "Kept after session 1", "Kept at the end"]
    heads += ["Peak memory", "Time"]
    return make_table("Parameters, bytes kept, time", heads, rows)


# The tables of a single run, by the beginnings of their files' names.
OF_A_RUN = {"decisions": decisions, "classes": by_class, "time": costs}
