"""What test pictures were answered with: which classes are confused, and how much each learner counts."""

from collections import Counter
from statistics import fmean
from typing import NamedTuple

from safecl.report.runs import Prediction, Run


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


def weights(run: Run) -> list[Weight]:
    """How much the fast learner counts in the answers to each class; empty where nothing is weighed."""
    found: dict[tuple[int, str], list[float]] = {}
    for one in run.predictions:
        value = one.weights.get("fast")
        if value is not None:
            found.setdefault((one.session, one.label), []).append(value)
    return [Weight(label, session, fmean(values)) for (session, label), values in found.items()]
