"""A series is one output of one run, with the name and the colours that it wears in every figure and table."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from safecl.report.runs import Run, Validation

NAMES = {"safe": "SAFE", "ranpac": "RanPAC", "finetune": "Fine-tuning"}


class Colour(NamedTuple):
    """A colour on white, its partner on a dark page, and a marker, so that no line is told by hue alone."""

    light: str
    dark: str
    marker: str


# Told apart under the common colour-vision deficiencies; each has a contrast of 3:1 or more to its page.
COLOURS = {
    "safe": Colour("#0068b0", "#5ab0f0", "o"),
    "slow": Colour("#00866a", "#2fc79f", "s"),
    "fast": Colour("#b0509a", "#e394cc", "^"),
    "ranpac": Colour("#c76a00", "#f5a142", "D"),
    "finetune": Colour("#68707d", "#a3abb8", "v"),
}
SPARE = (
    Colour("#7a5c00", "#e3c34a", "P"),
    Colour("#0e7f8c", "#57cbd8", "X"),
    Colour("#7d55b5", "#bd9ceb", "p"),
    Colour("#a3333d", "#f08a92", "h"),
    Colour("#3f6212", "#a8cf68", "*"),
)


@dataclass(frozen=True)
class Series:
    """One output of a run; ``main`` marks the output that the method answers with."""

    run: Run
    output: str
    name: str
    colour: Colour
    main: bool

    @property
    def pooled(self) -> list[tuple[int, float]]:
        """(session, accuracy on all that was tested) after each finished session."""
        pairs = [(line.session, line.pooled.get(self.output)) for line in self.run.metrics]
        return [(session, value) for session, value in pairs if value is not None]

    @property
    def seen(self) -> list[tuple[int, float]]:
        """(session, accuracy on what was learned): another number only where domains to come are tested as well."""
        pairs = [(line.session, (line.seen or line.pooled).get(self.output)) for line in self.run.metrics]
        return [(session, value) for session, value in pairs if value is not None]

    @property
    def validation(self) -> list[tuple[int, float]]:
        """(session, accuracy on the held-out training pictures of all sessions so far), where there are any."""
        pairs = [(line.session, (line.validation or Validation()).pooled.get(self.output)) for line in self.run.metrics]
        return [(session, value) for session, value in pairs if value is not None]

    @property
    def lost(self) -> list[tuple[int, float]]:
        """(session, forgetting) after each finished session but the first."""
        pairs = [(line.session, line.forgetting.get(self.output)) for line in self.run.metrics[1:]]
        return [(session, value) for session, value in pairs if value is not None]

    @property
    def seconds(self) -> list[tuple[int, float]]:
        """(session, seconds that it took)."""
        pairs = [(line.session, line.seconds.get("total")) for line in self.run.metrics]
        return [(session, value) for session, value in pairs if value is not None]

    @property
    def final(self) -> float | None:
        """Accuracy on all that was tested after the newest session."""
        return self.run.last.pooled.get(self.output) if self.run.last else None

    @property
    def final_seen(self) -> float | None:
        """Accuracy on what was learned, after the newest session."""
        return (self.run.last.seen or self.run.last.pooled).get(self.output) if self.run.last else None

    @property
    def average(self) -> float | None:
        """The mean over sessions of the accuracy on all that was tested."""
        return mean([value for _, value in self.pooled])

    @property
    def average_seen(self) -> float | None:
        """The mean over sessions of the accuracy on what was learned."""
        return mean([value for _, value in self.seen])

    @property
    def forgetting(self) -> float | None:
        """Mean drop from the best accuracy of each earlier session; undefined after the first."""
        return self.run.last.forgetting.get(self.output) if self.run.last and self.run.done > 1 else None

    @property
    def backward(self) -> float | None:
        """BWT: the mean over earlier sessions of the accuracy now minus that right after each; once all are learned."""
        if self.run.done < self.run.total or self.run.done < 2:
            return None
        now = self.rows.get(self.run.done, [])
        then = [self._at(i, i) for i in range(1, self.run.done)]
        return mean([a - b for a, b in zip(now, then, strict=False) if a is not None and b is not None])

    @property
    def forward(self) -> float | None:
        """FWT: the mean accuracy on sessions right before they were learned, above a guess among the classes then."""
        if self.run.done < self.run.total or self.run.done < 2:
            return None
        gains = []
        for line in self.run.metrics[:-1]:
            before = self._at(line.session, line.session + 1)
            if before is None or not line.classes_seen:
                return None
            gains.append(before - 1 / line.classes_seen)
        return mean(gains)

    @property
    def rows(self) -> dict[int, list[float | None]]:
        """The matrix R: after session t, the accuracy on the test pictures of sessions 1, 2, …"""
        return {line.session: list(line.accuracy.get(self.output, [])) for line in self.run.metrics}

    @property
    def runs(self) -> list[Run]:
        """The runs that the numbers are the mean of."""
        return [self.run]

    def deviation(self, kind: str) -> float | None:
        """The standard deviation over runs of a number such as "final"; None for one run."""
        return None

    def band(self) -> list[tuple[int, float, float]]:
        """(session, least, most) of what ``pooled`` is the mean of; empty for one run."""
        return []

    def _at(self, after: int, session: int) -> float | None:
        row = self.rows.get(after, [])
        return row[session - 1] if len(row) >= session else None


def mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


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
    names = run_names(runs)
    outputs = Counter(output for run in runs for output in _sides(run))
    own = {COLOURS[key] for run in runs for key in (run.facts.method, *_sides(run)) if key in COLOURS}
    result: list[Series] = []
    for run, name in zip(runs, names, strict=True):
        result.append(Series(run, run.facts.main, name, _colour(run.facts.method, result, own), True))
        for output in _sides(run):
            shown = display(output) if outputs[output] == 1 else f"{name}, {output}"
            result.append(Series(run, output, shown, _colour(output, result, own), False))
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
