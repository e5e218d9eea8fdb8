"""What test pictures were answered with, counted: confusions and aggregation weights."""

from collections import Counter
from statistics import fmean
from typing import NamedTuple

from safecl.report.runs import Prediction, Run


class Confusion(NamedTuple):
    """``counts[i][j]`` of the ``tested[i]`` pictures of class i were answered with class j."""

    labels: list[str]
    counts: list[list[int]]
    tested: list[int]


class Weight(NamedTuple):
    """The mean weight of the fast learner in the answers to a class."""

    label: str
    session: int
    fast: float


def said(run: Run, one: Prediction) -> str:
    """The method's own answer."""
    return one.predicted.get(run.facts.main, "")


def pairs(run: Run) -> list[tuple[str, str, int]]:
    """(class, what it is confused with, how often), the most frequent first."""
    found = Counter((one.label, other) for one in run.predictions if (other := said(run, one)) != one.label)
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return [(label, other, times) for (label, other), times in ordered]


def confusion(run: Run, most: int = 10) -> Confusion | None:
    """The answers among the classes of the most frequent confusions; None where every answer is right."""
    chosen: set[str] = set()
    for label, other, _ in pairs(run):
        if len(chosen | {label, other}) > most:
            break
        chosen |= {label, other}
    tested = Counter(one.label for one in run.predictions)
    labels = [*(label for label in tested if label in chosen), *sorted(chosen - set(tested))]
    answers = Counter((one.label, said(run, one)) for one in run.predictions)
    counts = [[answers[label, other] for other in labels] for label in labels]
    return Confusion(labels, counts, [tested[label] for label in labels]) if labels else None


def weights(run: Run) -> list[Weight]:
    """How much the fast learner counts in the answers to each class; empty where nothing is weighed."""
    found: dict[tuple[int, str], list[float]] = {}
    for one in run.predictions:
        value = one.weights.get("fast")
        if value is not None:
            found.setdefault((one.session, one.label), []).append(value)
    return [Weight(label, session, fmean(values)) for (session, label), values in found.items()]
