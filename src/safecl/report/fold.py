"""Runs that differ in their seed alone are one: means over seeds, with the standard deviation as their spread."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import stdev

from safecl.report.runs import Run
from safecl.report.series import Series, all_series, mean

SEED = re.compile(r"^seed:.*\n?", flags=re.MULTILINE)


@dataclass(frozen=True)
class Folded(Series):
    """One output of runs of the same settings; every number is the mean over those that have begun.

    ``run`` is the least advanced of them, so that there is a mean after each of its sessions.
    """

    members: tuple[Series, ...]

    @property
    def runs(self) -> list[Run]:
        """The runs of all seeds."""
        return [one.run for one in self.members]

    @property
    def pooled(self) -> list[tuple[int, float]]:
        return self._curve(lambda one: one.pooled)

    @property
    def seen(self) -> list[tuple[int, float]]:
        return self._curve(lambda one: one.seen)

    @property
    def validation(self) -> list[tuple[int, float]]:
        return self._curve(lambda one: one.validation)

    @property
    def lost(self) -> list[tuple[int, float]]:
        return self._curve(lambda one: one.lost)

    @property
    def seconds(self) -> list[tuple[int, float]]:
        return self._curve(lambda one: one.seconds)

    @property
    def final(self) -> float | None:
        return dict(self.pooled).get(self.run.done)

    @property
    def final_seen(self) -> float | None:
        return dict(self.seen).get(self.run.done)

    @property
    def forgetting(self) -> float | None:
        return self._mean(lambda one: one.forgetting)

    @property
    def backward(self) -> float | None:
        return self._mean(lambda one: one.backward)

    @property
    def forward(self) -> float | None:
        return self._mean(lambda one: one.forward)

    @property
    def rows(self) -> dict[int, list[float | None]]:
        result = {}
        for session in range(1, self.run.done + 1):
            found = [one.rows[session] for one in self._begun if session in one.rows]
            columns = zip(*found, strict=False)
            result[session] = [mean([value for value in column if value is not None]) for column in columns]
        return result

    def deviation(self, kind: str) -> float | None:
        """The sample standard deviation over seeds of a number such as "final"; None for fewer than two."""
        values = [getattr(one, kind) for one in self._begun if one.run.done == self.run.done]
        found = [value for value in values if value is not None]
        return stdev(found) if len(found) > 1 else None

    def band(self) -> list[tuple[int, float, float]]:
        """(session, mean − deviation, mean + deviation) of ``pooled``, where there are two seeds or more."""
        curves = [dict(one.pooled) for one in self._begun]
        result = []
        for session, middle in self.pooled:
            found = [curve[session] for curve in curves if session in curve]
            if len(found) > 1:
                result.append((session, middle - stdev(found), middle + stdev(found)))
        return result

    @property
    def _begun(self) -> list[Series]:
        return [one for one in self.members if one.run.done]

    def _curve(self, values: Callable[[Series], list[tuple[int, float]]]) -> list[tuple[int, float]]:
        curves = [dict(values(one)) for one in self._begun]
        found = [(t, mean([curve[t] for curve in curves if t in curve])) for t in range(1, self.run.done + 1)]
        return [(session, value) for session, value in found if value is not None]

    def _mean(self, value: Callable[[Series], float | None]) -> float | None:
        found = [value(one) for one in self._begun if one.run.done == self.run.done]
        return mean([each for each in found if each is not None])


def fold(runs: Sequence[Run]) -> list[list[Run]]:
    """The runs, those of one configuration together; runs of the same seed stay apart."""
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(_key(run), []).append(run)
    result = []
    for group in groups.values():
        apart = len({run.facts.seed for run in group}) < len(group)
        result += [[run] for run in group] if apart else [group]
    return result


def folded(runs: Sequence[Run]) -> list[Folded]:
    """Every output of every configuration, as ``all_series`` gives them for runs."""
    groups = fold(runs)
    firsts = [min(group, key=lambda run: run.done or run.total + 1) for group in groups]
    members = {id(first): group for first, group in zip(firsts, groups, strict=True)}
    result = []
    for one in all_series(firsts):
        same = tuple(Series(run, one.output, one.name, one.colour, one.main) for run in members[id(one.run)])
        result.append(Folded(one.run, one.output, one.name, one.colour, one.main, same))
    return result


def _key(run: Run) -> tuple[str, ...]:
    facts = run.facts
    about = (facts.method, facts.title, facts.preset, facts.pet or "", facts.backbone.name, *facts.outputs)
    stream = (facts.stream.name, facts.stream.protocol, str(run.total))
    return (*about, *stream, SEED.sub("", run.config))
