"""What test pictures were answered with, counted: confusions, aggregation weights, and maps of features."""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safecl.report import words
from safecl.report.runs import Prediction, Run

MIN_MAPPED = 30  # pictures that a map needs


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


class Map(NamedTuple):
    """Features of one network in two dimensions, (n, 2); ``near``: share whose nearest neighbour is of their class."""

    network: str
    points: NDArray[np.float32]
    near: float

    @property
    def note(self) -> str:
        return f"{words.percent(self.near)} of the pictures have a nearest neighbour of their own class."


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


def maps(run: Run, known: Sequence[Run] = ()) -> list[Map]:
    """t-SNE of the features of the frozen backbone and of the tuned networks; empty where there are too few.

    The backbone is omitted where one of the ``known`` runs has the same features of it.
    """
    features = run.features
    if features is None or len(features.labels) < MIN_MAPPED or len(set(features.labels)) < 2:
        return []
    labels, result = np.array(features.labels), []
    others = [other.features for other in known if other.features and other.features.labels == features.labels]
    shown = [other.networks["backbone"] for other in others if "backbone" in other.networks]
    for name in dict.fromkeys(["backbone", *run.facts.outputs, *features.networks]):
        found = features.networks.get(name)
        if found is None or (name == "backbone" and any(np.array_equal(found, other) for other in shown)):
            continue
        distances = np.square(found[:, None] - found[None]).sum(axis=2)
        np.fill_diagonal(distances, np.inf)
        near = float((labels[distances.argmin(axis=1)] == labels).mean())
        result.append(Map(name, tsne(found), near))
    return result


def tsne(features: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n, d) → (n, 2)."""
    from sklearn.manifold import TSNE  # half a second, which most pages do without

    drawn = TSNE(perplexity=min(30.0, (len(features) - 1) / 3), init="pca", max_iter=500, random_state=0)
    points: NDArray[np.float32] = drawn.fit_transform(features)
    return points
