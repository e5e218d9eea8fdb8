"""Decides: whether a model is tuned that answers already.
By: what tuning can gain of the untuned model's leave-one-out error, and the seconds that it takes.
Pilots say more once they are trained: what share of the error they gain on classes that they were
not tuned on.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from safecl.engine.settings import TrainSettings
from safecl.errors import SafeclError
from safecl.methods.settings.base import MethodSettings

Tune: TypeAlias = Literal["auto", "never", "always"]
# Shares of the untuned error that all tuning together, and that of later sessions alone, gained at
# most in nine of ten runs on CIFAR-100 and Tiny-ImageNet (docs/results.md); without pilots.
MOST_OF_ERROR = 0.6
MOST_OF_LATER_ERROR = 0.2
MIN_POINTS = 0.5  # that tuning must gain
MIN_POINTS_PER_MINUTE = 1.0  # that a person waits for
# one picture through a step of training, in looks of the network at one picture
LOOKS_PER_STEP = 4.0


@dataclass(frozen=True)
class Look:
    """What the first pass over a session's pictures has shown: how many there are, the seconds of a
    look of a network at one, and the leave-one-out accuracy of the model that came of it, if known.
    """

    pictures: int
    seconds: float | None
    accuracy: float | None


@dataclass(frozen=True)
class Worth:
    """What tuning is expected to take and to gain: ``points`` of accuracy, None where nobody can
    say; and whether it is worth that.
    """

    seconds: float
    points: float | None

    @property
    def pays(self) -> bool:
        if self.points is None:
            return True
        per_minute = self.points * 60 / max(self.seconds, 1e-9)
        return self.points >= MIN_POINTS and per_minute >= MIN_POINTS_PER_MINUTE

    @property
    def words(self) -> str:
        gain = "nobody can say what it would gain"
        if self.points is not None:
            points = f"{self.points:.1f}".removesuffix(".0")
            gain = f"gain about {points} {'point' if points == '1' else 'points'}"
        return f"tuning would take about {self.seconds:.0f} s and {gain}"


class NotWorth(Exception):
    """Pilots have shown that tuning does not pay."""

    def __init__(self, worth: Worth) -> None:
        super().__init__(worth.words)
        self.worth = worth


def expected(
    look: Look, settings: MethodSettings, train: TrainSettings, first: bool, gain: float | None
) -> Worth:
    """What tuning a session is worth; ``gain``: the share of the error that pilots gain, if any
    were trained.
    """
    epochs = train.epochs if first else (train.later_epochs or train.epochs)
    passes = settings.passes(first) if gain is None else 1.0
    seconds = epochs * passes * look.pictures * LOOKS_PER_STEP * (look.seconds or 0.0)
    if look.accuracy is None:
        return Worth(seconds, None)
    most = MOST_OF_ERROR if first else MOST_OF_LATER_ERROR
    share = most if gain is None else max(gain, 0.0)
    return Worth(seconds, 100 * (1 - look.accuracy) * share)


@dataclass(frozen=True)
class Plan:
    """The steps of a session: one without training that ``answers``, and one that ``tunes``."""

    answers: bool
    tunes: bool
    asks: bool = False  # tuning must pay
    begins_untuned: bool = False  # what answers is another method: the one before any tuning
    answered: bool = False  # the first step was done before a stop


def plan(
    settings: MethodSettings, begun: bool, tuned: bool, tune: Tune, sure: bool, waited: bool
) -> Plan:
    """What a session is made of. ``begun``: there were others, ``tuned``: and the model has been.
    ``sure``: what can be tuned is, whether that pays or not; ``waited``: somebody waits for the
    first answer.
    """
    if begun and not tuned:
        if tune == "always":
            raise SafeclError("model.tune.begun-without")
        return Plan(answers=True, tunes=False)
    if settings.idle_outside("train.later_lr" if begun else "train.lr") is not None:
        if tune == "always":
            raise SafeclError("model.tune.nothing", title=settings.title)
        return Plan(answers=True, tunes=False)
    if settings.before_tuning() is None:
        if tune == "never":
            raise SafeclError("model.tune.needed", title=settings.title)
        return Plan(answers=False, tunes=True)
    return Plan(
        answers=waited or tune == "never" or not sure,
        tunes=tune != "never",
        asks=tune == "auto" and not sure,
        begins_untuned=not begun,
    )


def of_tuning(key: str) -> bool:
    """Whether a setting by its dotted key says how to tune."""
    return key.startswith(("method.", "train.", "epochs")) and not key.startswith("method.ridge.")
