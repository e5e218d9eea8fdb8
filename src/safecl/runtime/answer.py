"""What a model says of one picture, and how far its word goes. No torch is imported."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from safecl.errors import SafeclError
from safecl.lines import counted
from safecl.streams.labels import Label, sorted_classes

MIN_BELOW = 2  # pictures with an answer that its own threshold would call unknown; else it is that of all


@dataclass(frozen=True)
class Answer:
    """What a model says of one picture. ``opinions``: the likeliest classes of each output, with probabilities."""

    label: Label
    probability: float | None  # None where there were too few pictures to calibrate it
    unknown: bool | None  # None where there were too few pictures to tell
    nearest: list[tuple[Label, float]]
    opinions: dict[str, list[tuple[Label, float]]]
    weights: dict[str, float]  # of the slow and the fast learner in the answer, where the method has them
    score: float  # how known the picture looks; unknown if below ``threshold``
    threshold: float | None  # of pictures with this answer; −∞ where none may be called unknown

    @property
    def limit(self) -> float | None:
        """``threshold``, if there is a finite one."""
        return None if self.threshold is None or math.isinf(self.threshold) else round(self.threshold, 6)

    @property
    def told(self) -> str:
        """In a few words; an unknown picture has no percentage, which would be among the known classes."""
        if self.unknown:
            return f"unknown (most similar: {self.label})"
        return f"{self.label}" if self.probability is None else f"{self.label} {100 * self.probability:.0f} %"

    def fields(self, detail: bool) -> dict[str, Any]:
        """What JSON says of it; ``detail``: with all opinions."""
        sure = None if self.probability is None else round(self.probability, 6)
        said: dict[str, Any] = {"label": self.label, "probability": sure, "unknown": self.unknown}
        more = {"opinions": self.opinions, "weights": self.weights, "score": round(self.score, 6)}
        return said | ({**more, "threshold": self.limit} if detail else {})


class Answering(ABC):
    """Whatever answers: a model, or an exported file."""

    outputs: tuple[str, ...]  # what it gives an opinion by; its answer comes last
    known: list[Label]  # the classes in the order of its logits
    calibration: dict[str, Any] | None  # what makes probabilities of logits, and what known pictures look like

    @abstractmethod
    def answers(self, pictures: Any, *, unknown: float | None = 0.05, detail: bool = True) -> Iterator[Answer]:
        """The answers one by one. ``detail``: with all opinions."""

    @property
    def classes_(self) -> np.ndarray:
        """The classes, sorted: numbers by value, then words by spelling. So are the columns of ``predict_proba``."""
        return as_array(sorted_classes(self.known))

    def limits(self, unknown: float | None) -> np.ndarray:
        """By answer, the score below which a picture is unknown; see ``thresholds``."""
        return thresholds(self.calibration, unknown, len(self.known))

    def predict(self, pictures: Any, *, unknown: float | None = None) -> np.ndarray:
        """The class of each picture; None where it looks unknown, if ``unknown`` is given.

        ``pictures``: a path, a folder, an image, uint8 arrays (H, W, 3) or (N, H, W, 3), or a list of files, images or
        arrays.
        ``unknown``: the share of known pictures that may be called unknown, for example 0.05.
        """
        if np.isnan(self.limits(unknown)).any():
            raise SafeclError(f"The model {self.cannot_tell(unknown)} Give a larger share, or omit it.")
        found = list(self.answers(pictures, unknown=unknown, detail=False))
        if unknown is None:
            return as_array([answer.label for answer in found] or self.known)[: len(found)]
        return np.array([None if answer.unknown else answer.label for answer in found], dtype=object)

    def explain(self, pictures: Any, *, unknown: float = 0.05) -> list[Answer]:
        """For each picture the answer, the opinion of each output, and their weights."""
        return list(self.answers(pictures, unknown=unknown))

    def cannot_tell(self, unknown: float | None) -> str:
        """What there are too few pictures to say, as the end of a sentence about the model; empty if nothing."""
        sure = [] if is_calibrated(self.calibration) or len(self.known) == 1 else ["how sure an answer is"]
        few = [f"whether a picture is unknown at a rate of {unknown:g}"] if np.isnan(self.limits(unknown)).any() else []
        told = " and ".join([*sure, *few])
        there = counted(self.calibration["pictures"], "picture") if self.calibration else "no pictures"
        return told and f"has {there} to judge itself by, too few to say {told}."

    def by_class(self, found: Iterable[np.ndarray]) -> np.ndarray:
        """Rows with a column per class in its own order, as (N, C) in the order of ``classes_``."""
        columns = [self.known.index(label) for label in sorted_classes(self.known)]
        return np.concatenate([np.zeros((0, len(columns)), dtype=np.float32), *found])[:, columns]


def as_array(labels: Sequence[Label]) -> np.ndarray:
    """Of numbers, of words, or of objects where there are both."""
    return np.array(labels, dtype=None if len({type(label) for label in labels}) == 1 else object)


def make_answers(
    classes: Sequence[Label],
    p: Mapping[str, np.ndarray],
    score: np.ndarray,
    limits: np.ndarray,
    calibrated: bool,
    weights: Mapping[str, np.ndarray] | None = None,
) -> Iterator[Answer]:
    """The answers to N pictures. ``p``: probabilities (N, C) by output, the answer's last; ``score``: (N,).

    ``limits``: see ``thresholds``. ``weights`` (N,) of outputs: given where opinions are wanted.
    """
    *_, (main, rows) = p.items()
    for i, best in enumerate(rows.argmax(axis=1).tolist()):
        opinions = {} if weights is None else {name: _likeliest(each[i], classes) for name, each in p.items()}
        limit, known = float(limits[best]), float(score[i])
        yield Answer(
            label=classes[best],
            probability=float(rows[i, best]) if calibrated else None,
            unknown=None if math.isnan(limit) else known < limit,
            nearest=opinions.get(main, []),
            opinions=opinions,
            weights={name: float(each[i]) for name, each in (weights or {}).items()},
            score=known,
            threshold=None if math.isnan(limit) else limit,
        )


def one_class(model: str, label: Label) -> str:
    """What a model can answer that knows one class."""
    return f"{model} knows one class, so it answers {label} or unknown to every picture; teach it a second one."


def _likeliest(p: np.ndarray, classes: Sequence[Label]) -> list[tuple[Label, float]]:
    return [(classes[i], float(p[i])) for i in np.argsort(-p, kind="stable")[:5].tolist()]


def is_calibrated(calibration: Mapping[str, Any] | None) -> bool:
    """Whether probabilities mean anything: there were pictures enough, and two classes."""
    return bool(calibration) and calibration["temperature"] is not None  # type: ignore[index]


def thresholds(calibration: Mapping[str, Any] | None, rate: float | None, classes: int) -> np.ndarray:
    """By answer, the score below which a picture is unknown, so that a share ``rate`` of known ones is: (C,).

    −∞ where none may be, NaN where there are too few pictures to tell.
    """
    if rate is not None and not 0 <= rate < 1:
        raise SafeclError(f"The share of known pictures that may be called unknown must be below 1, not {rate}.")
    if not rate:
        return np.full(classes, -math.inf)
    scores = calibration["scores"] if calibration else [[]] * classes
    common = quantile(sorted(score for own in scores for score in own), rate)
    enough = [rate * (len(own) + 1) >= MIN_BELOW for own in scores]
    limits = [quantile(own, rate) if many else common for own, many in zip(scores, enough, strict=True)]
    return np.array(limits, dtype=np.float64)


def quantile(scores: Sequence[float], rate: float) -> float:
    """The value that a further score is below with probability ``rate``, by n sorted ones; NaN by too few.

    It is below the k-th of them with probability k / (n + 1), and linearly between two of them.
    """
    place = rate * (len(scores) + 1)
    k = math.floor(place + 1e-9)  # 0.29 · 100 is 29
    if k < 1:
        return math.nan
    return scores[-1] if k >= len(scores) else scores[k - 1] + max(place - k, 0.0) * (scores[k] - scores[k - 1])
