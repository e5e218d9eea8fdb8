"""A series is one output of a configuration, with the name and the colours that it wears in every
figure and table.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import fmean, stdev

from safecl.report import words
from safecl.report.colours import Colour, paired
from safecl.report.runs import Metrics, Run, Validation

SEED = re.compile(r"^seed:.*\n?", flags=re.MULTILINE)


class Curve:
    """(session, mean over the runs of a number) after each finished session that has one; read from
    a series.
    """

    def __init__(self, number: Callable[[Metrics, str], float | None]) -> None:
        self.number = number

    def __get__(self, one: "Series", owner: object = None) -> list[tuple[int, float]]:
        result = []
        for session in range(1, one.run.done + 1):
            found = [self.number(line, one.output) for line in one.lines(session)]
            middle = mean(found)
            result += [] if middle is None else [(session, middle)]
        return result


class Last:
    """The number of a curve after the newest session."""

    def __init__(self, curve: Curve) -> None:
        self.curve = curve

    def __get__(self, one: "Series", owner: object = None) -> float | None:
        return dict(self.curve.__get__(one)).get(one.run.done)


class Average(Last):
    """The mean of a curve over sessions."""

    def __get__(self, one: "Series", owner: object = None) -> float | None:
        return mean(value for _, value in self.curve.__get__(one))


@dataclass(frozen=True)
class Series:
    """One output of runs that differ in their seed alone: every number is the mean over those that
    have begun.

    ``main`` marks the output that the method answers with. Accuracies are on all that was tested,
    or on what was learned (``seen``): another number only where domains to come are tested as well.
    """

    runs: tuple[Run, ...]
    output: str
    name: str
    colour: Colour
    main: bool

    pooled = Curve(lambda line, output: line.pooled.get(output))
    seen = Curve(lambda line, output: (line.seen or line.pooled).get(output))
    validation = Curve(lambda line, output: (line.validation or Validation()).pooled.get(output))
    lost = Curve(lambda line, output: line.forgetting.get(output) if line.session > 1 else None)
    seconds = Curve(lambda line, _: line.seconds.get("total"))

    final = Last(pooled)
    final_seen = Last(seen)
    final_validation = Last(validation)
    average = Average(pooled)
    average_seen = Average(seen)
    average_validation = Average(validation)
    # mean drop from the best accuracy of each earlier session; undefined after the first
    forgetting = Last(lost)

    @property
    def run(self) -> Run:
        """The least advanced of those that have begun, so that there is a mean after each of its
        sessions.
        """
        return min(self.runs, key=lambda run: run.done or run.total + 1)

    @property
    def metrics(self) -> dict[str, float | None]:
        """What metrics of other packages say after the newest session, by their names."""
        lines = self.lines(self.run.done)
        names = dict.fromkeys(name for line in lines for name in line.metrics)
        return {
            name: mean(line.metrics.get(name, {}).get(self.output) for line in lines)
            for name in names
        }

    @property
    def time(self) -> float:
        """Seconds of all sessions."""
        return sum(value for _, value in self.seconds)

    @property
    def rows(self) -> dict[int, list[float | None]]:
        """The matrix R: after session t, the accuracy on the test pictures of sessions 1, 2, …"""
        result = {}
        for session in range(1, self.run.done + 1):
            columns = zip(
                *(line.accuracy.get(self.output, []) for line in self.lines(session)), strict=False
            )
            result[session] = [mean(column) for column in columns]
        return result

    def deviation(self, kind: str) -> float | None:
        """The sample standard deviation over seeds of a number such as "final"; None for fewer than
        two.
        """
        alone = [
            replace(self, runs=(run,))
            for run in self.runs
            if run.done and run.done == self.run.done
        ]
        found = [value for one in alone if (value := attrgetter(kind)(one)) is not None]
        return stdev(found) if len(found) > 1 else None

    def band(self) -> list[tuple[int, float, float]]:
        """(session, mean − deviation, mean + deviation) of ``pooled``, where there are two seeds or
        more.
        """
        result = []
        for session, middle in self.pooled:
            found = [
                v for line in self.lines(session) if (v := line.pooled.get(self.output)) is not None
            ]
            if len(found) > 1:
                result.append((session, middle - stdev(found), middle + stdev(found)))
        return result

    def lines(self, session: int) -> list[Metrics]:
        return [line for run in self.runs for line in run.metrics if line.session == session]

    def accuracy(self, after: int, session: int) -> float | None:
        """On the test pictures of ``session``, after learning the session ``after``."""
        row = self.rows.get(after, [])
        return row[session - 1] if len(row) >= session else None


def mean(values: Iterable[float | None]) -> float | None:
    """Of those that are there."""
    found = [value for value in values if value is not None]
    return fmean(found) if found else None


def stream_key(run: Run) -> tuple[str, ...]:
    """Runs with the same key are on the same stream, so that their accuracies can be compared."""
    stream = run.facts.stream
    return (stream.name, stream.protocol, *(session.name for session in stream.sessions))


def by_stream(series: Iterable[Series]) -> dict[tuple[str, ...], list[Series]]:
    streams: dict[tuple[str, ...], list[Series]] = {}
    for one in series:
        streams.setdefault(stream_key(one.run), []).append(one)
    return streams


def all_series(runs: Sequence[Run], fold_seeds: bool = False) -> list[Series]:
    """Every output of every run, a run's main output first; names are unique, colours as far as
    they reach.

    ``fold_seeds``: runs that differ in their seed alone are one.
    """
    groups = fold(runs) if fold_seeds else [[run] for run in runs]
    firsts = [group[0] for group in groups]
    outputs = Counter(output for run in firsts for output in _sides(run))
    keys = [key for run in firsts for key in (run.facts.method, *_sides(run))]
    # A method or learner that comes again has another colour.
    colours = iter(
        paired(f"{key} {i}" if key in keys[:i] else key for i, key in enumerate(keys)).values()
    )
    result: list[Series] = []
    for group, name in zip(groups, run_names(firsts), strict=True):
        result.append(Series(tuple(group), group[0].facts.main, name, next(colours), True))
        for output in _sides(group[0]):
            shown = words.upper_first(output) if outputs[output] == 1 else f"{name}, {output}"
            result.append(Series(tuple(group), output, shown, next(colours), False))
    return result


def fold(runs: Sequence[Run]) -> list[list[Run]]:
    """The runs, those of one configuration together; runs of the same seed stay apart."""
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        facts = run.facts
        about = (
            facts.method,
            facts.title,
            facts.preset,
            facts.pet or "",
            facts.backbone,
            *facts.outputs,
        )
        stream = (facts.stream.name, facts.stream.protocol, str(run.total))
        groups.setdefault((*about, *stream, SEED.sub("", run.config)), []).append(run)
    result = []
    for group in groups.values():
        apart = len({run.facts.seed for run in group}) < len(group)
        result += [[run] for run in group] if apart else [group]
    return result


def run_names(runs: Sequence[Run]) -> list[str]:
    """The runs' methods; of runs with the same method, also what tells them apart."""
    names = [run.facts.title for run in runs]
    for name in [name for name, times in Counter(names).items() if times > 1]:
        places = [i for i, other in enumerate(names) if other == name]
        for i, difference in zip(places, _differences([runs[i] for i in places]), strict=True):
            names[i] = f"{name} ({difference})"
    return names


def _sides(run: Run) -> list[str]:
    return [output for output in run.facts.outputs if output != run.facts.main]


def _differences(runs: Sequence[Run]) -> list[str]:
    """What tells runs apart: settings, else the folder's name, or with that of the folder it is in,
    else a number.
    """
    facts = [run.facts for run in runs]
    told = {
        "preset": [one.preset or "none" for one in facts],
        "stream": [one.stream.name for one in facts],
        "backbone": [one.backbone for one in facts],
        "PET": [one.pet or "none" for one in facts],
        "seed": [str(one.seed) for one in facts],
    }
    differ = {key: values for key, values in told.items() if len(set(values)) > 1}
    settings = [
        ", ".join(f"{key} {values[i]}" for key, values in differ.items()) for i in range(len(runs))
    ]
    folders = [["/".join(run.folder.parts[-depth:]) for run in runs] for depth in (1, 2)]
    unique = (names for names in (settings, *folders) if len(set(names)) == len(runs))
    return next(unique, [f"run {i}" for i in range(1, len(runs) + 1)])
