"""The tables of accuracies: at the end, and after each session."""

from collections.abc import Sequence

from safecl.report import sentences, words
from safecl.report.runs import Metrics
from safecl.report.series import Series, display, run_names, stream_key
from safecl.report.table import Cell, Column, Table, make_table, numbers

MAX_BESIDE = 4  # runs that stand beside each other in a table by session; more of them stand below each other


def accuracy_tables(series: Sequence[Series]) -> list[Table]:
    """All of them; none where nothing was measured."""
    if not any(one.pooled or one.validation for one in series):
        return []
    return [at_the_end(series), *after_each_session(series)]


def at_the_end(series: Sequence[Series]) -> Table:
    """One row for each series: the measures that papers give."""
    rows: list[list[Cell]] = []
    finals: dict[tuple[str, ...], list[float]] = {}  # of each stream
    for one in series:
        if one.main and one.final is not None:
            finals.setdefault(stream_key(one.run), []).append(one.final)
    domains = [one.run.facts.stream.protocol == "domain" for one in series]
    several = any(len(one.runs) > 1 for one in series)
    for one, domain in zip(series, domains, strict=True):
        rivals = finals.get(stream_key(one.run), [])
        best = one.main and len(rivals) > 1 and one.final == max(rivals)
        learned = one.average_seen if domain else None
        held = dict(one.validation).get(one.run.done)
        cells = [Cell(one.name), Cell(sentences.measured(one), best, value=one.final, spread=_spread(one))]
        cells.append(Cell(str(len(one.runs)) if several else words.NONE, value=len(one.runs)))
        cells += numbers(words.percent, one.average, learned)
        cells += numbers(words.points, one.forgetting, one.backward, one.forward)
        cells += [Cell(sentences.validated(one), value=held), Cell(one.run.facts.preset or words.NONE)]
        rows.append(cells)
    average = "Average over sessions" + (", all domains" if any(domains) else "")
    leads = ["Output", "Final accuracy", "Seeds", average, "Average over sessions, domains learned so far"]
    leads += ["Forgetting", "Backward transfer", "Forward transfer", "Validation", "Preset"]
    told = [i for i in range(len(leads)) if i < 2 or any(row[i].text != words.NONE for row in rows)]
    heads, kept = [leads[i] for i in told], [[row[i] for i in told] for row in rows]
    return make_table("At the end", heads, kept, words=["Preset"])


def after_each_session(series: Sequence[Series]) -> list[Table]:
    """Runs on the same stream stand in one table; each other stream has its own."""
    streams: dict[tuple[str, ...], list[Series]] = {}
    for one in series:
        streams.setdefault(stream_key(one.run), []).append(one)
    result = []
    for key, ones in streams.items():
        title = f"After each session, in percent{f' ({key[0]})' if len(streams) > 1 else ''}"
        many = sum(one.main for one in ones) > MAX_BESIDE
        make = _session_columns if many else _sessions
        if key[1] == "domain":
            result.append(make(f"{title}: on the domains learned so far", ones, "seen"))
            title += ": on all domains, also those to come"
        result.append(make(title, ones, "pooled"))
        if any(one.validation for one in ones):
            result.append(make(f"{title.partition(':')[0]}: on held-out training pictures", ones, "validation"))
    return result


def _spread(one: Series) -> float | None:
    """What stands behind the ± of a final accuracy."""
    deviation = one.deviation("final")
    if deviation is not None or one.final is None or not one.run.tested:
        return deviation
    return words.standard_error(one.final, one.run.tested)


def _session_columns(title: str, series: Sequence[Series], kind: str) -> Table:
    """A row for each run, its own answer alone; a column for each session."""
    mains = [one for one in series if one.main]
    sessions = sorted({line.session for one in mains for line in one.run.metrics})
    rows = []
    for one in mains:
        values = dict(getattr(one, kind))
        found = [values.get(session) for session in sessions]
        rows.append([Cell(one.name), *numbers(words.bare_percent, *found)])
    return make_table(title, ["Session", *map(str, sessions)], rows)


def _sessions(title: str, series: Sequence[Series], kind: str) -> Table:
    """``kind`` of accuracy: pooled, seen or validation."""
    runs = {id(one.run): one.run for one in series}
    blocks = [[one for one in series if one.run is run] for run in runs.values()]
    # The parts first, then what the method makes of them.
    blocks = [sorted(block, key=lambda one: one.main) for block in blocks]
    columns = [Column("Session", words=True), Column("Classes")]
    for block, name in zip(blocks, run_names(list(runs.values())), strict=True):  # told apart within this table
        parts = [display(one.output) for one in block[:-1]]
        whole = name.partition(" (")[0] if parts else "accuracy"
        more = () if kind == "validation" else ("forgot", "time")
        columns += [Column(head, name) for head in (*parts, whole, *more)]
    measured = {line.session: line for run in runs.values() for line in run.metrics}
    return Table(title, columns, [_session_row(line, blocks, kind) for _, line in sorted(measured.items())])


def _session_row(session: Metrics, blocks: Sequence[Sequence[Series]], kind: str) -> list[Cell]:
    name = f"{session.session}" + (f" · {session.name}" if session.name else "")
    row = [Cell(name), Cell(str(session.classes_seen))]
    values = [[dict(getattr(one, kind)).get(session.session) for one in block] for block in blocks]
    best = max((block[-1] for block in values if block[-1] is not None), default=None)
    for block, found in zip(blocks, values, strict=True):
        for one, value in zip(block, found, strict=True):
            first = one.main and len(blocks) > 1 and value is not None and value == best
            row.append(Cell(words.bare_percent(value), best=first, value=value))
        if kind == "validation":
            continue
        row += numbers(words.points, dict(block[-1].lost).get(session.session))
        row += numbers(words.duration, dict(block[-1].seconds).get(session.session))
    return row
