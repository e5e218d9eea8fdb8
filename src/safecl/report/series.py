"""A series is one output of a configuration, with the name and the colours that it wears in every figure and table."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from safecl.report.colours import COLOURS, SPARE, Colour
from safecl.report.runs import Metrics, Run, Validation

NAMES = {"safe": "SAFE", "ranpac": "RanPAC", "finetune": "Fine-tuning"}
SEED = re.compile(r"^seed:.*\n?", flags=re.MULTILINE)


@dataclass(frozen=True)
class Series:
    """One output of runs that differ in their seed alone: every number is the mean over those that have begun.

    ``main`` marks the output that the method answers with.
    """

    runs: tuple[Run, ...]
    output: str
    name: str
    colour: Colour
    main: bool

    @property
    def run(self) -> Run:
        """The least advanced of those that have begun, so that there is a mean after each of its sessions."""
        return min(self.runs, key=lambda run: run.done or run.total + 1)

    @property
    def pooled(self) -> list[tuple[int, float]]:
        """(session, accuracy on all that was tested) after each finished session."""
        return self._curve(lambda line: line.pooled.get(self.output))

    @property
    def seen(self) -> list[tuple[int, float]]:
        """(session, accuracy on what was learned): another number only where domains to come are tested as well."""
        return self._curve(lambda line: (line.seen or line.pooled).get(self.output))

    @property
    def validation(self) -> list[tuple[int, float]]:
        """(session, accuracy on the held-out training pictures of all sessions so far), where there are any."""
        return self._curve(lambda line: (line.validation or Validation()).pooled.get(self.output))

    @property
    def lost(self) -> list[tuple[int, float]]:
        """(session, forgetting) after each finished session but the first."""
        return self._curve(lambda line: line.forgetting.get(self.output) if line.session > 1 else None)

    @property
    def seconds(self) -> list[tuple[int, float]]:
        """(session, seconds that it took)."""
        return self._curve(lambda line: line.seconds.get("total"))

    @property
    def final(self) -> float | None:
        """Accuracy on all that was tested after the newest session."""
        return dict(self.pooled).get(self.run.done)

    @property
    def final_seen(self) -> float | None:
        """Accuracy on what was learned, after the newest session."""
        return dict(self.seen).get(self.run.done)

    @property
    def average(self) -> float | None:
        """The mean over sessions of the accuracy on all that was tested."""
        return mean(value for _, value in self.pooled)

    @property
    def average_seen(self) -> float | None:
        """The mean over sessions of the accuracy on what was learned."""
        return mean(value for _, value in self.seen)

    @property
    def forgetting(self) -> float | None:
        """Mean drop from the best accuracy of each earlier session; undefined after the first."""
        return dict(self.lost).get(self.run.done)

    @property
    def backward(self) -> float | None:
        """BWT: the mean over earlier sessions of the accuracy now minus that right after each; once all are learned."""
        rows, done = self.rows, self.run.done
        if done < self.run.total or done < 2:
            return None
        pairs = [(_at(rows, done, i), _at(rows, i, i)) for i in range(1, done)]
        return mean(now - then for now, then in pairs if now is not None and then is not None)

    @property
    def forward(self) -> float | None:
        """FWT: the mean accuracy on sessions right before they were learned, above a guess among the classes then."""
        rows, done = self.rows, self.run.done
        if done < self.run.total or done < 2:
            return None
        gains = []
        for line in self.run.metrics[:-1]:
            before = _at(rows, line.session, line.session + 1)
            if before is None or not line.classes_seen:
                return None
            gains.append(before - 1 / line.classes_seen)
        return mean(gains)

    @property
    def rows(self) -> dict[int, list[float | None]]:
        """The matrix R: after session t, the accuracy on the test pictures of sessions 1, 2, …"""
        result = {}
        for session in range(1, self.run.done + 1):
            columns = zip(*(line.accuracy.get(self.output, []) for line in self._lines(session)), strict=False)
            result[session] = [mean(value for value in column if value is not None) for column in columns]
        return result

    def deviation(self, kind: str) -> float | None:
        """The sample standard deviation over seeds of a number such as "final"; None for fewer than two."""
        alone = [replace(self, runs=(run,)) for run in self.runs if run.done and run.done == self.run.done]
        found = [value for one in alone if (value := getattr(one, kind)) is not None]
        return stdev(found) if len(found) > 1 else None

    def band(self) -> list[tuple[int, float, float]]:
        """(session, mean − deviation, mean + deviation) of ``pooled``, where there are two seeds or more."""
        result = []
        for session, middle in self.pooled:
            found = [v for line in self._lines(session) if (v := line.pooled.get(self.output)) is not None]
            if len(found) > 1:
                result.append((session, middle - stdev(found), middle + stdev(found)))
        return result

    def _lines(self, session: int) -> list[Metrics]:
        return [line for run in self.runs for line in run.metrics if line.session == session]

    def _curve(self, value: Callable[[Metrics], float | None]) -> list[tuple[int, float]]:
        """(session, mean over the runs) where there is a value."""
        sessions = range(1, self.run.done + 1)
        found = [(t, mean(v for line in self._lines(t) if (v := value(line)) is not None)) for t in sessions]
        return [(session, middle) for session, middle in found if middle is not None]


def _at(rows: dict[int, list[float | None]], after: int, session: int) -> float | None:
    row = rows.get(after, [])
    return row[session - 1] if len(row) >= session else None


def mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return fmean(found) if found else None


def alike(series: Sequence[Series]) -> list[Series]:
    """The parts of methods whose accuracies were, after every session, those of the method itself."""
    mains = {id(one.run): one for one in series if one.main}
    return [one for one in series if not one.main and one.pooled and one.rows == mains[id(one.run)].rows]


def stream_key(run: Run) -> tuple[str, ...]:
    """Runs with the same key are on the same stream, so that their accuracies can be compared."""
    stream = run.facts.stream
    return (stream.name, stream.protocol, *(session.name for session in stream.sessions))


def all_series(runs: Sequence[Run]) -> list[Series]:
    """Every output of every run, a run's main output first; names are unique, colours as far as they reach."""
    return _series([[run] for run in runs])


def folded(runs: Sequence[Run]) -> list[Series]:
    """The same where runs that differ in their seed alone are one."""
    return _series(fold(runs))


def fold(runs: Sequence[Run]) -> list[list[Run]]:
    """The runs, those of one configuration together; runs of the same seed stay apart."""
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        facts = run.facts
        about = (facts.method, facts.title, facts.preset, facts.pet or "", facts.backbone.name, *facts.outputs)
        stream = (facts.stream.name, facts.stream.protocol, str(run.total))
        groups.setdefault((*about, *stream, SEED.sub("", run.config)), []).append(run)
    result = []
    for group in groups.values():
        apart = len({run.facts.seed for run in group}) < len(group)
        result += [[run] for run in group] if apart else [group]
    return result


def _series(groups: Sequence[Sequence[Run]]) -> list[Series]:
    firsts = [group[0] for group in groups]
    outputs = Counter(output for run in firsts for output in _sides(run))
    own = {COLOURS[key] for run in firsts for key in (run.facts.method, *_sides(run)) if key in COLOURS}
    result: list[Series] = []
    for group, name in zip(groups, run_names(firsts), strict=True):
        run = group[0]
        result.append(Series(tuple(group), run.facts.main, name, _colour(run.facts.method, result, own), True))
        for output in _sides(run):
            shown = display(output) if outputs[output] == 1 else f"{name}, {output}"
            result.append(Series(tuple(group), output, shown, _colour(output, result, own), False))
    return result


def run_names(runs: Sequence[Run]) -> list[str]:
    """The runs' methods; of runs with the same method, also what tells them apart."""
    names = [run.facts.title or display(run.facts.method) for run in runs]
    for name in [name for name, times in Counter(names).items() if times > 1]:
        places = [i for i, other in enumerate(names) if other == name]
        for i, difference in zip(places, _differences([runs[i] for i in places]), strict=True):
            names[i] = f"{name} ({difference})"
    return names


def display(name: str) -> str:
    """The name as a person writes it."""
    return NAMES.get(name, name[:1].upper() + name[1:])


def _sides(run: Run) -> list[str]:
    return [output for output in run.facts.outputs if output != run.facts.main]


def _differences(runs: Sequence[Run]) -> list[str]:
    tellings = [
        {
            "preset": run.facts.preset or "none",
            "stream": run.facts.stream.name,
            "backbone": run.facts.backbone.name,
            "PET": run.facts.pet or "none",
            "seed": str(run.facts.seed),
        }
        for run in runs
    ]
    keys = [key for key in tellings[0] if len({telling[key] for telling in tellings}) > 1]
    words = [", ".join(f"{key} {telling[key]}" for key in keys) for telling in tellings]
    if len(set(words)) == len(runs):
        return words
    for depth in (1, 2):  # the folder's name, or with that of the folder it is in
        folders = ["/".join(run.folder.parts[-depth:]) for run in runs]
        if len(set(folders)) == len(runs):
            return folders
    return [f"run {i}" for i in range(1, len(runs) + 1)]


def _colour(key: str, taken: Sequence[Series], own: set[Colour]) -> Colour:
    """The colour of a method or a learner, if it has one that is free; else one that is nobody's ``own``."""
    used = {series.colour for series in taken}
    wanted = COLOURS.get(key)
    if wanted is not None and wanted not in used:
        return wanted
    free = [colour for colour in (*SPARE, *COLOURS.values()) if colour not in used | own]
    return free[0] if free else SPARE[len(taken) % len(SPARE)]
