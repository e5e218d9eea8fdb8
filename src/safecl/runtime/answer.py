"""What a model says of one picture, and how far its word goes. No torch is imported."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from safecl.errors import SafeclError
from safecl.lines import counted
from safecl.runtime.drift import Drift
from safecl.streams.labels import Label, sorted_classes
from safecl.streams.pictures.decode import UnreadableError, decode
from safecl.streams.pictures.find import File, printable

# pictures that a threshold of an answer's own, or of a class's, leaves out; else it is a common one
MIN_BELOW = 2
ROUNDING = 1e-9  # 0.29 · 100 is 29
T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    """What a model says of one picture. ``opinions``: the likeliest classes of each output, with
    probabilities.
    """

    label: Label
    probability: float | None  # None where there were too few pictures to calibrate it
    unknown: bool | None  # None where there were too few pictures to tell
    nearest: list[tuple[Label, float]]
    opinions: dict[str, list[tuple[Label, float]]]
    # of the slow and the fast learner in the answer, where the method has them
    weights: dict[str, float]
    score: float  # how known the picture looks; unknown if below ``threshold``
    threshold: float | None  # of pictures with this answer; −∞ where none may be called unknown
    # the classes that it may be, the likeliest first, where they were asked for; it may be empty
    set: tuple[Label, ...] | None = None

    @property
    def limit(self) -> float | None:
        """``threshold``, if there is a finite one."""
        return (
            None
            if self.threshold is None or math.isinf(self.threshold)
            else round(self.threshold, 6)
        )

    @property
    def told(self) -> str:
        """In a few words; an unknown picture has no percentage, which would be among the known
        classes.
        """
        if self.unknown:
            return f"unknown (most similar: {self.label})"
        return (
            f"{self.label}"
            if self.probability is None
            else f"{self.label} {100 * self.probability:.0f} %"
        )

    def fields(self, detail: bool) -> dict[str, Any]:
        """What JSON says of it; ``detail``: with all opinions."""
        sure = None if self.probability is None else round(self.probability, 6)
        said: dict[str, Any] = {"label": self.label, "probability": sure, "unknown": self.unknown}
        said |= {} if self.set is None else {"set": list(self.set)}
        more = {"opinions": self.opinions, "weights": self.weights, "score": round(self.score, 6)}
        return said | ({**more, "threshold": self.limit} if detail else {})


class Limits(NamedTuple):
    """What an answer is held against: ``scores`` (C,), see ``thresholds``; ``members`` (C,), see
    ``least``; None: no sets.
    """

    scores: np.ndarray
    members: np.ndarray | None = None


class Answering(ABC):
    """Whatever answers: a model, or an exported file."""

    outputs: tuple[str, ...]  # what it gives an opinion by; its answer comes last
    known: list[Label]  # the classes in the order of its logits
    # what makes probabilities of logits, and what known pictures look like
    calibration: dict[str, Any] | None

    @abstractmethod
    def answers(
        self,
        pictures: Any,
        *,
        unknown: float | None = 0.05,
        detail: bool = True,
        sets: float | None = None,
        drift: Drift | None = None,
    ) -> Iterator[Answer]:
        """The answers one by one. ``detail``: with all opinions; ``sets``: with the set of this
        coverage; ``drift``: is shown the pictures.
        """

    def drift(self, pictures: Any, before: Drift | None = None) -> Drift:
        """Whether pictures, in the order in which they came, look as those that were taught.

        ``before``: goes on with these, unless the model has learned since; then it begins anew.
        """
        found = (before or Drift(self.calibration, self.known)).going_on(
            self.calibration, self.known
        )
        for _ in self.answers(pictures, unknown=None, detail=False, drift=found):
            pass
        return found

    @property
    def classes_(self) -> np.ndarray:
        """The classes, sorted: numbers by value, then words by spelling. So are the columns of
        ``predict_proba``.
        """
        return as_array(sorted_classes(self.known))

    def limits(self, unknown: float | None, sets: float | None = None) -> Limits:
        """By answer, the score below which a picture is unknown; and, for sets that hold the class
        of a share ``sets`` of pictures, by class the least probability of a member.
        """
        scores = thresholds(self.calibration, unknown, len(self.known))
        if sets is None:
            return Limits(scores)
        members = least(self.calibration, sets, len(self.known))
        if np.isnan(members).any():
            judged = len(_pooled(_own(self.calibration, len(self.known))))
            there = counted(judged, "picture")
            raise SafeclError("answer.sets.cannot-tell", coverage=sets, there=there)
        return Limits(scores, members)

    def predict(self, pictures: Any, *, unknown: float | None = None) -> np.ndarray:
        """The class of each picture; None where it looks unknown, if ``unknown`` is given.

        ``pictures``: a path, a folder, an image, uint8 arrays (H, W, 3) or (N, H, W, 3), or a list
        of files, images or arrays. ``unknown``: the share of known pictures that may be called
        unknown, for example 0.05.
        """
        if np.isnan(self.limits(unknown).scores).any():
            raise SafeclError("answer.share.cannot-tell", reason=self.cannot_tell(unknown))
        found = list(self.answers(pictures, unknown=unknown, detail=False))
        if unknown is None:
            return as_array([answer.label for answer in found] or self.known)[: len(found)]
        return np.array(
            [None if answer.unknown else answer.label for answer in found], dtype=object
        )

    def predict_sets(self, pictures: Any, coverage: float = 0.9) -> list[tuple[Label, ...]]:
        """For each picture the smallest set of classes that holds its own in a share ``coverage``
        of pictures, the likeliest first; an empty one: none of these.
        """
        found = self.answers(pictures, unknown=None, detail=False, sets=coverage)
        return [answer.set or () for answer in found]

    def explain(self, pictures: Any, *, unknown: float = 0.05) -> list[Answer]:
        """For each picture the answer, the opinion of each output, and their weights."""
        return list(self.answers(pictures, unknown=unknown))

    def cannot_tell(self, unknown: float | None) -> str:
        """What there are too few pictures to say, as the end of a sentence about the model; empty
        if nothing.
        """
        sure = (
            []
            if is_calibrated(self.calibration) or len(self.known) == 1
            else ["how sure an answer is"]
        )
        few = (
            [f"whether a picture is unknown at a rate of {unknown:g}"]
            if np.isnan(self.limits(unknown).scores).any()
            else []
        )
        told = " and ".join([*sure, *few])
        there = (
            counted(self.calibration["pictures"], "picture") if self.calibration else "no pictures"
        )
        return told and f"has {there} to judge itself by, too few to say {told}."

    def by_class(self, found: Iterable[np.ndarray]) -> np.ndarray:
        """Rows with a column per class in its own order, as (N, C) in the order of ``classes_``."""
        columns = [self.known.index(label) for label in sorted_classes(self.known)]
        return np.concatenate([np.zeros((0, len(columns)), dtype=np.float32), *found])[:, columns]


def asked(files: Sequence[File], ask: Callable[[list[File]], Iterable[T]]) -> list[T | str]:
    """What ``ask`` gives for each file, or why it cannot be read."""
    answers: dict[int, T | str] = {i: file.problem for i, file in enumerate(files) if file.problem}

    def ask_good() -> None:
        good = [i for i in range(len(files)) if i not in answers]
        answers.update(zip(good, list(ask([files[i] for i in good])) if good else (), strict=True))

    try:
        ask_good()
    except SafeclError:  # one of them cannot be decoded
        for i, file in enumerate(files):
            try:
                decode(file.read(), printable(file.path))
            except SafeclError as error:
                answers.setdefault(
                    i, error.reason if isinstance(error, UnreadableError) else str(error)
                )
        ask_good()
    return [answers[i] for i in range(len(files))]


def as_array(labels: Sequence[Label]) -> np.ndarray:
    """Of numbers, of words, or of objects where there are both."""
    return np.array(labels, dtype=None if len({type(label) for label in labels}) == 1 else object)


def make_answers(
    classes: Sequence[Label],
    p: Mapping[str, np.ndarray],
    score: np.ndarray,
    limits: Limits,
    calibrated: bool,
    weights: Mapping[str, np.ndarray] | None = None,
) -> Iterator[Answer]:
    """The answers to N pictures. ``p``: probabilities (N, C) by output, the answer's last;
    ``score``: (N,).

    ``weights`` (N,) of outputs: given where opinions are wanted.
    """
    for numbers in (*p.values(), score, *(weights or {}).values()):
        check_finite(numbers)
    *_, (main, rows) = p.items()
    for i, best in enumerate(rows.argmax(axis=1).tolist()):
        opinions = (
            {}
            if weights is None
            else {name: _likeliest(each[i], classes) for name, each in p.items()}
        )
        limit = float(limits.scores[best])
        known = float(score[i])
        yield Answer(
            label=classes[best],
            probability=float(rows[i, best]) if calibrated else None,
            unknown=None if math.isnan(limit) else known < limit,
            nearest=opinions.get(main, []),
            opinions=opinions,
            weights={name: float(each[i]) for name, each in (weights or {}).items()},
            score=known,
            threshold=None if math.isnan(limit) else limit,
            set=None if limits.members is None else _members(rows[i], limits.members, classes),
        )


def check_finite(numbers: np.ndarray) -> np.ndarray:
    """The numbers of an answer, if there is one."""
    if not np.isfinite(numbers).all():
        raise SafeclError("answer.not-finite")
    return numbers


def one_class(model: str, label: Label) -> str:
    """What a model can answer that knows one class."""
    return (
        f"{model} knows one class, so it answers {label} or unknown to every picture; teach it a"
        " second one."
    )


def _likeliest(p: np.ndarray, classes: Sequence[Label]) -> list[tuple[Label, float]]:
    return [(classes[i], float(p[i])) for i in np.argsort(-p, kind="stable")[:5].tolist()]


def _members(p: np.ndarray, least: np.ndarray, classes: Sequence[Label]) -> tuple[Label, ...]:
    order = np.argsort(-p, kind="stable")
    return tuple(classes[c] for c in order.tolist() if p[c] >= least[c])


def is_calibrated(calibration: Mapping[str, Any] | None) -> bool:
    """Whether probabilities mean anything: there were pictures enough, and two classes."""
    return bool(calibration) and calibration["temperature"] is not None  # type: ignore[index]


def thresholds(
    calibration: Mapping[str, Any] | None, rate: float | None, classes: int
) -> np.ndarray:
    """By answer, the score below which a picture is unknown, so that a share ``rate`` of known ones
    is: (C,).

    −∞ where none may be, NaN where there are too few pictures to tell.
    """
    if rate is not None and not 0 <= rate < 1:
        raise SafeclError("answer.share.not-below-one", rate=rate)
    if not rate:
        return np.full(classes, -math.inf)
    scores = calibration["scores"] if calibration else [[]] * classes
    common = quantile(sorted(score for own in scores for score in own), rate)
    enough = [rate * (len(own) + 1) >= MIN_BELOW for own in scores]
    limits = [
        quantile(own, rate) if many else common for own, many in zip(scores, enough, strict=True)
    ]
    return np.array(limits, dtype=np.float64)


def quantile(scores: Sequence[float], rate: float) -> float:
    """The value that a further score is below with probability ``rate``, by n sorted ones; NaN by
    too few.

    It is below the k-th of them with probability k / (n + 1), and linearly between two of them.
    """
    place = rate * (len(scores) + 1)
    k = math.floor(place + ROUNDING)
    if k < 1:
        return math.nan
    return (
        scores[-1]
        if k >= len(scores)
        else scores[k - 1] + max(place - k, 0.0) * (scores[k] - scores[k - 1])
    )


def least(calibration: Mapping[str, Any] | None, coverage: float, classes: int) -> np.ndarray:
    """By class, the least probability with which it is in the set of a picture, so that a share
    ``coverage`` of its pictures have it in theirs: (C,); NaN where there are too few to tell.

    Split conformal prediction by leave-one-out answers: of n of them and a new one, the k-th least
    is above the new one with probability k / (n + 1) at most. A class has a value of its own if k
    is ``MIN_BELOW``; the others have one together, or that of all pictures where they are too few.
    """
    if not 0 < coverage < 1:
        raise SafeclError("answer.sets.no-share", coverage=coverage)
    own = _own(calibration, classes)
    ranks = [_rank(len(p), coverage) for p in own]
    rest = _pooled(p for p, k in zip(own, ranks, strict=True) if k < MIN_BELOW)
    group = rest if _rank(len(rest), coverage) else _pooled(own)
    k = _rank(len(group), coverage)
    common = group[k - 1] if k else math.nan
    found = [p[k - 1] if k >= MIN_BELOW else common for p, k in zip(own, ranks, strict=True)]
    return np.array(found, dtype=np.float64)


def _own(calibration: Mapping[str, Any] | None, classes: int) -> list[list[float]]:
    """By class, the probabilities of it that its pictures had, in ascending order."""
    found = calibration.get("own") if calibration else None
    return [[]] * classes if found is None else found


def _pooled(several: Iterable[Sequence[float]]) -> list[float]:
    return sorted(value for each in several for value in each)


def _rank(count: int, coverage: float) -> int:
    """k of ``least``."""
    return math.floor((1 - coverage) * (count + 1) + ROUNDING)
