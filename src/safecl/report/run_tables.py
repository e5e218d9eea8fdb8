"""The tables of single runs: decisions, confusions, losses, time, memory, versions."""

from collections import Counter
from collections.abc import Sequence

from safecl.report import words
from safecl.report.answers import pairs, said
from safecl.report.runs import Run
from safecl.report.series import Series
from safecl.report.table import Cell, Table, make_table, numbers
from safecl.settings import flatten

# What a method notes of its decisions: the head of the column, and a word for yes and one for no.
DECISIONS = {
    "pilots": ("Pilots", "trained", "none"),
    "transfer": ("Transfer loss", "used", "not used"),
    "kept": ("Tuning kept", "", ""),
    "released": ("L_cos", "dropped", "used"),
    "average": ("Weight of the session", "", ""),
}


def decisions(run: Run, name: str) -> Table | None:
    """What the method noted of its decisions in each session; None if it noted nothing."""
    noted = [flatten(line.notes) for line in run.metrics]
    keys = list(dict.fromkeys(key for notes in noted for key in notes))
    if not keys:
        return None
    rows = [
        [Cell(str(line.session)), *(_decision(key, notes.get(key)) for key in keys)]
        for line, notes in zip(run.metrics, noted, strict=True)
    ]
    return make_table(name, ["Session", *(_decided(key) for key in keys)], rows)


def _decided(key: str) -> str:
    """The head of a column: of keys that are not known here, their own words."""
    text = DECISIONS[key][0] if key in DECISIONS else key.replace("_", " ").replace(".", ": ")
    return words.upper_first(text)


def _decision(key: str, value: object) -> Cell:
    if isinstance(value, bool):
        _, yes, no = DECISIONS.get(key, (key, "yes", "no"))
        return Cell(yes if value else no, value=float(value))
    if isinstance(value, int | float):
        return Cell(words.percent(float(value)) if key in DECISIONS else f"{value:.4g}", value=float(value))
    if isinstance(value, list | tuple):
        return Cell(", ".join(_decision("", one).text for one in value))
    return Cell(words.NONE if value is None else str(value))


def confused(run: Run, name: str, most: int = 12) -> Table | None:
    """The pairs of classes that the method's own answer confuses most often; None where there is none."""
    tested = Counter(one.label for one in run.predictions)
    rows = [
        [Cell(label, label=True), Cell(other, label=True), Cell(f"{times} of {tested[label]}", value=times)]
        for label, other, times in pairs(run)[:most]
    ]
    return make_table(name, ["Class", "Confused with", "How often"], rows, words=["Confused with"]) if rows else None


def by_class(run: Run, name: str) -> Table | None:
    """The accuracy on each class, the worst first; None where nothing was tested."""
    answers: dict[str, Counter[str]] = {}
    for one in run.predictions:
        answers.setdefault(one.label, Counter())[said(run, one)] += 1
    rows = []
    for label, given in sorted(answers.items(), key=lambda item: (item[1][item[0]] / item[1].total(), item[0])):
        wrong = [(times, other) for other, times in given.items() if other != label]
        pictures, share = given.total(), given[label] / given.total()
        cells = [Cell(label, label=True), Cell(words.accuracy(share, pictures), value=share)]
        cells += numbers(words.count, pictures)
        rows.append([*cells, Cell(max(wrong)[1], label=True) if wrong else Cell(words.NONE)])
    heads = ["Class", "Accuracy", "Test pictures", "Most often confused with"]
    return make_table(name, heads, rows, words=heads[3:]) if rows else None


def costs(run: Run, name: str) -> Table:
    """Where a run's time and memory went."""
    stages = list(dict.fromkeys(stage for line in run.metrics for stage in line.seconds))
    rows = []
    for line in run.metrics:
        seconds = [line.seconds.get(stage) for stage in stages]
        cells = [Cell(str(line.session)), *numbers(words.duration, *seconds)]
        cells += numbers(words.count, line.images_per_second)
        rows.append(cells + numbers(words.size, line.peak_memory, line.bytes_kept))
    heads = ["Session", *(s.capitalize() for s in stages), "Pictures/s", "Peak memory", "Kept"]
    return make_table(name, heads, rows)


def kept(series: Sequence[Series]) -> Table:
    """What each method trains and keeps, and what it took: time and peak over all sessions."""
    rows = []
    for one in series:
        run, first, last = one.run, one.run.metrics[0], one.run.metrics[-1]
        peak = max((line.peak_memory for line in run.metrics if line.peak_memory is not None), default=None)
        cells = [Cell(one.name), *numbers(words.count, run.parameters.learnable, run.parameters.stored)]
        cells += numbers(words.size, first.bytes_kept, last.bytes_kept, peak)
        rows.append(cells + numbers(words.duration, sum(value for _, value in one.seconds)))
    heads = ["Run", "Learnable numbers", "Numbers kept", "Kept after session 1", "Kept at the end"]
    heads += ["Peak memory", "Time"]
    return make_table("Parameters, bytes kept, time", heads, rows)


def environments(named: Sequence[tuple[Run, str]]) -> Table:
    """Versions and hardware; runs with the same ones share a column."""
    found: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for run, name in named:
        found.setdefault(tuple(_environment(run).items()), []).append(name)
    keys = list(dict.fromkeys(key for items in found for key, _ in items))
    columns = [dict(items) for items in found]
    heads = [", ".join(names[:3]) + (" …" if names[3:] else "") for names in found.values()]
    heads = ["Value"] if len(found) == 1 else heads
    rows = [[key, *(column.get(key, words.NONE) for column in columns)] for key in keys]
    return make_table("Versions and hardware", ["", *heads], rows, words=heads)


def _environment(run: Run) -> dict[str, str]:
    facts = run.facts
    about = {"safecl": facts.version, **facts.libraries, "git revision": facts.git or ""}
    about |= {"device": facts.device, "hardware": facts.hardware, "precision": facts.precision}
    about |= {"processes": str(facts.processes) if facts.processes > 1 else ""}
    return {key: value for key, value in about.items() if value}


def losses(run: Run, name: str) -> Table:
    """Each phase's loss at its first and last logged step, and the terms of the last."""
    terms = list(dict.fromkeys(term for line in run.losses for term in line.terms))
    rows = []
    for part in run.loss_parts():
        ends = [part[0].loss, part[-1].loss, *(part[-1].terms.get(term) for term in terms)]
        numbers = [Cell(words.NONE if value is None else f"{value:.4g}", value=value) for value in ends]
        rows.append([Cell(f"{part[0].session} {part[0].phase}"), Cell(str(part[-1].step)), *numbers])
    return make_table(
        f"{name}: loss", ["Session, phase", "Steps", "First", "Last", *(f"Last {t}" for t in terms)], rows
    )
