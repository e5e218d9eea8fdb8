"""What test pictures were answered with, counted: confusions, aggregation weights, and maps of features."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from safecl.report.runs import Features, Prediction, Run

MIN_MAPPED = 30  # pictures that a map needs


@dataclass(frozen=True)
class Confusion:
    """Answers among some classes: ``counts[i][j]`` pictures of class i were answered with class j.

    ``elsewhere[i]``: of class i, those that were answered with any other class.
    """

    labels: list[str]
    counts: list[list[int]]
    elsewhere: list[int]


@dataclass(frozen=True)
class Weight:
    """The mean weights of the learners in the answers to a class, in the order of learning."""

    label: str
    session: int
    weights: dict[str, float]


@dataclass(frozen=True)
class Map:
    """Features of one network in two dimensions, (n, 2); ``near``: share whose nearest neighbour is of their class."""

    network: str
    points: NDArray[np.float32]
    near: float


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
    labels: list[str] = []
    for label, other, _ in pairs(run):
        new = [one for one in dict.fromkeys((label, other)) if one not in labels]
        if len(labels) + len(new) > most:
            break
        labels += new
    if not labels:
        return None
    order = {label: i for i, label in enumerate(dict.fromkeys(one.label for one in run.predictions))}
    labels.sort(key=lambda label: order.get(label, len(order)))
    place = {label: i for i, label in enumerate(labels)}
    counts, elsewhere = [[0] * len(labels) for _ in labels], [0] * len(labels)
    for one in run.predictions:
        if one.label in place:
            answer = said(run, one)
            if answer in place:
                counts[place[one.label]][place[answer]] += 1
            else:
                elsewhere[place[one.label]] += 1
    return Confusion(labels, counts, elsewhere)


def weights(run: Run) -> list[Weight]:
    """How much each learner counts in the answers to each class; empty where nothing is weighed."""
    found: dict[tuple[int, str], dict[str, list[float]]] = {}
    for one in run.predictions:
        for output, value in one.weights.items():
            if value is not None:
                found.setdefault((one.session, one.label), {}).setdefault(output, []).append(value)
    return [
        Weight(label, session, {output: mean(values) for output, values in by.items()})
        for (session, label), by in found.items()
    ]


def maps(run: Run, known: Sequence[Run] = ()) -> list[Map]:
    """t-SNE of the features of the frozen backbone and of the tuned networks; empty where there are too few.

    The backbone is omitted where one of the ``known`` runs has the same features of it.
    """
    features = run.features
    if features is None or no_map(run):
        return []
    from sklearn.manifold import TSNE  # half a second, which most pages do without

    labels, result = np.array(features.labels), []
    order = sorted(
        features.networks,
        key=lambda name: (name != "backbone", run.facts.outputs.index(name) if name in run.facts.outputs else 0),
    )
    for name in order:
        found = features.networks[name]
        if name == "backbone" and any(_same(features, other.features) for other in known):
            continue
        distances = np.square(found[:, None] - found[None]).sum(axis=2)
        np.fill_diagonal(distances, np.inf)
        near = float((labels[distances.argmin(axis=1)] == labels).mean())
        points = TSNE(
            perplexity=min(30.0, (len(found) - 1) / 3), init="pca", max_iter=500, random_state=0
        ).fit_transform(found)
        result.append(Map(name, points, near))
    return result


def no_map(run: Run) -> str:
    """Why there is no map of a finished run's features; empty where there is one."""
    if run.features is None:
        return "no features were kept with the run" if run.ended else ""
    if len(run.features.labels) < MIN_MAPPED or len(set(run.features.labels)) < 2:
        return f"a map needs {MIN_MAPPED} test pictures and two classes"
    return ""


def _same(one: Features, other: Features | None) -> bool:
    """Whether both have the same backbone features of the same pictures."""
    if other is None or one.labels != other.labels:
        return False
    before, after = one.networks["backbone"], other.networks.get("backbone")
    return after is not None and before.shape == after.shape and bool((before == after).all())
