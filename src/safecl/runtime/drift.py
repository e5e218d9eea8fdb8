"""Has the world of the pictures changed since the model was taught? A sequential test, beside the
answers.

Each new picture is ranked among those with the same answer, taught ones and new ones before it: by
how known it looks, and by how it looks (light, contrast, sharpness, colours). If nothing has
changed, ranks are uniform, and independent of each other. Bets against that (conformal test
martingales: Vovk, Gammerman and Shafer, 2022) multiply a stake, part of which begins anew with each
picture, so that a late change is seen as well. They exceed 1 / rate with probability ``rate`` at
most, however many pictures come (Ville). No torch is imported.
"""

import bisect
import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from safecl.lines import counted, naming
from safecl.streams.labels import Label

RATE = 0.01  # share of quiet streams in which there is an alarm, however long they are
# by how a picture looks: what it is if it has less of that, and if it has more
LOOKS = {
    "light": ("darker", "lighter"),
    "contrast": ("flatter", "richer in contrast"),
    "sharpness": ("blurrier", "sharper"),
    "warmth": ("bluer", "redder"),
    "tint": ("more purple", "greener"),
    "colour": ("paler", "more colourful"),
}
LESS_KNOWN = "less like anything that was taught"
MIN_JUDGED = 19  # pictures below which nothing can be told
POWERS = np.array([0.25, 0.5, 0.75])  # of bets on small ranks: κ p^(κ − 1)
# Known pictures were taught: left out, they may still look a little more known than new ones do.
# A small rank of this one kind may be so many times as frequent before it counts.
SLACK = 1.5
START = 30  # pictures in which half of the stake is laid
MOST = 1e100  # of a stake, which nothing larger would change
RECENT = 1000  # pictures that are remembered, to say which show it
TINY = 1e-12
FEW = 3  # pictures from which a class is named, and classes or pictures that are named
MOST_WORDS = 2
WEAKER = 0.5  # share of the strongest evidence, of its logarithm, that is still named
AFFECTED = 1 / 3  # mean rank below which a class is


def looks(pictures: Any) -> list[Any]:
    """Light, contrast, sharpness, warmth, tint, colour of N pictures, each (N,); all but the first
    are as they were if every pixel is multiplied by a number.

    ``pictures``: (N, 3, H, W) in [0, 1], of numpy or torch.
    """
    red = pictures[:, 0]
    green = pictures[:, 1]
    blue = pictures[:, 2]
    grey = (red + green + blue) / 3
    light = grey.mean((1, 2))
    spread = ((grey - light[:, None, None]) ** 2).mean((1, 2)) ** 0.5
    across = abs(grey[:, :, 1:] - grey[:, :, :-1]).mean((1, 2))
    down = abs(grey[:, 1:] - grey[:, :-1]).mean((1, 2))
    level = light + TINY
    apart = abs(red - green) + abs(green - blue) + abs(blue - red)  # twice the largest less least
    return [
        light,
        spread / level,
        (across + down) / (spread + TINY),
        (red.mean((1, 2)) - blue.mean((1, 2))) / level,
        (green.mean((1, 2)) - (red.mean((1, 2)) + blue.mean((1, 2))) / 2) / level,
        apart.mean((1, 2)) / level,
    ]


@dataclass(eq=False)
class Bets:
    """A stake on ranks p of one kind being too often small (and, on ``both`` sides, large)."""

    both: bool = True
    seen: int = 0
    stakes: np.ndarray = field(init=False)
    runs: np.ndarray = field(init=False)  # log of what each bet has won since it began
    began: list[int] = field(init=False)  # pictures before that
    peak: float = 1.0  # the most that all was worth; and of the bet that had won most then:
    large: bool = False  # whether it is on large ranks
    since: int = 0  # and the pictures before it began

    def __post_init__(self) -> None:
        many = len(POWERS) * (1 + self.both)
        self.stakes = np.zeros(many)
        self.runs = np.zeros(many)
        self.began = [0] * many

    def see(self, p: float) -> None:
        won = POWERS * max(p, TINY) ** (POWERS - 1)
        if self.both:
            won = np.concatenate([won, POWERS * max(1 - p, TINY) ** (POWERS - 1)])
        laid = _waiting(self.seen) - _waiting(self.seen + 1)
        self.stakes = np.minimum((self.stakes + laid / len(won)) * won, MOST)
        self.runs = np.maximum(self.runs, 0) + np.log(won)
        self.seen += 1
        for bet, run in enumerate(self.runs):
            if run <= 0:
                self.began[bet] = self.seen
        if self.evidence > self.peak:
            best = int(self.runs.argmax())
            self.peak = self.evidence
            self.large = best >= len(POWERS)
            self.since = self.began[best]

    @property
    def evidence(self) -> float:
        """What all is worth; it began as 1."""
        return float(self.stakes.sum()) + _waiting(self.seen)


def _waiting(seen: int) -> float:
    """The share of the stake that is laid later."""
    return 1 / (1 + math.log2(1 + seen / START))


@dataclass
class Ranks:
    """Values of one kind in one group of pictures, in ascending order."""

    values: list[float]

    def add(self, value: float, draw: float) -> float:
        """The rank of a further value in (0, 1), ties broken by ``draw``; it is one of them now."""
        low = bisect.bisect_left(self.values, value)
        high = bisect.bisect_right(self.values, value)
        self.values.insert(high, value)
        return (low + draw * (high - low + 1)) / len(self.values)


class Drift:
    """Whether new pictures look as those did that were taught; nothing that is answered depends on
    it.

    ``calibration``: that of the model; ``classes``: those of its answers. Once the model has
    learned more, a new one is begun.
    """

    def __init__(
        self,
        calibration: Mapping[str, Any] | None,
        classes: Sequence[Label],
        rate: float = RATE,
    ) -> None:
        self.classes = list(classes)
        self.calibration = calibration
        self.rate = rate
        self.seen = 0
        self._random = np.random.default_rng(0)
        self._before = set[tuple[float, ...]]()
        self._recent = deque[tuple[int, int, float, tuple[float, ...]]](maxlen=RECENT)
        # which bets, the picture from which on, and when that came
        self._alarm: tuple[int, int, float] | None = None
        taught = _taught(calibration)
        self.can_tell = len(taught) >= MIN_JUDGED
        self.bets = {"known": Bets(both=False), **{name: Bets() for name in LOOKS}}
        # by answer: streams may come class after class
        self._ranks = [[Ranks([]) for _ in self.bets] for _ in self.classes]
        for answer, *values in taught:
            for own, value in zip(self._ranks[answer], values, strict=True):
                own.values += [] if value is None else [value]
        for own in [one for group in self._ranks for one in group]:
            own.values.sort()
        self._idle = {
            name
            for place, name in enumerate(self.bets)
            if not any(group[place].values for group in self._ranks)
        }

    def going_on(self, calibration: Mapping[str, Any] | None, classes: Sequence[Label]) -> "Drift":
        """This one, whose classes may have new names; a new one if the model has learned since."""
        if self.calibration != calibration or len(self.classes) != len(classes):
            return Drift(calibration, classes, self.rate)
        self.classes = list(classes)
        return self

    def see(
        self,
        answers: Sequence[int],
        scores: Sequence[float],
        looks: Sequence[Sequence[float]],
        now: float | None = None,
    ) -> None:
        """N more pictures: places of their answers, how known they look, and ``looks`` (N, 6).

        One that looks exactly as one before proves nothing more. ``now``: when they came.
        """
        now = time.time() if now is None else now
        for answer, score, look in zip(answers, scores, looks, strict=True):
            self.seen += 1
            values = tuple(rounded(look))
            if not self.can_tell or values in self._before:
                continue
            if len(self._before) < 100 * RECENT:
                self._before.add(values)
            ranks = []
            for (name, bets), own, value in zip(
                self.bets.items(), self._ranks[answer], (float(score), *values), strict=True
            ):
                p = own.add(value, float(self._random.uniform()))
                if name not in self._idle:  # the model was taught before this was kept
                    bets.see(min(SLACK * p, 1.0) if name == "known" else p)
                ranks.append(p)
            self._recent.append((self.seen, answer, now, tuple(ranks)))
            if not self._alarm and self._strongest().peak >= self.needed:
                strongest = self._strongest()
                place = [*self.bets.values()].index(strongest)
                rows = list(self._recent)
                at, _, when, _ = rows[-max(strongest.seen - strongest.since, 1)]
                self._alarm = (place, at, when)

    @property
    def needed(self) -> float:
        """Evidence of one kind at which there is an alarm: each has its share of the rate."""
        return len(self.bets) / self.rate

    @property
    def alarm(self) -> bool:
        return self._alarm is not None

    @property
    def evidence(self) -> float:
        """The most that there was of one kind, as a share of what an alarm needs."""
        return self._strongest().peak / self.needed

    def _strongest(self) -> Bets:
        return max(self.bets.values(), key=lambda bets: bets.peak)

    @property
    def changes(self) -> list[str]:
        """What the pictures are, the strongest first, each as certain as the alarm; what is much
        weaker may follow from it. That they look less known comes last: that may, too.
        """
        strong = [
            (name == "known", -bets.peak, self._word(name))
            for name, bets in self.bets.items()
            if bets.peak >= max(self.needed, self._strongest().peak ** WEAKER)
        ]
        return [word for *_, word in sorted(strong)][:MOST_WORDS]

    def _word(self, name: str) -> str:
        return LESS_KNOWN if name == "known" else LOOKS[name][self.bets[name].large]

    def _since(self) -> list[tuple[int, int, float, float]]:
        """The pictures since the strongest change began: place, answer, time, rank."""
        assert self._alarm is not None
        own, began, _ = self._alarm
        large = [*self.bets.values()][own].large
        return [
            (at, answer, when, 1 - p[own] if large else p[own])
            for at, answer, when, p in self._recent
            if at >= began
        ]

    @property
    def since(self) -> int:
        """The picture from which on they look different, counted from 1; 0: there is no alarm."""
        return self._alarm[1] if self._alarm else 0

    @property
    def affected(self) -> list[Label]:
        """The answers to pictures that look different, the most frequent first."""
        rows: dict[int, list[float]] = {}
        for _, answer, _, p in self._since() if self.alarm else ():
            rows.setdefault(answer, []).append(p)
        order = sorted(rows.items(), key=lambda row: -len(row[1]))
        return [
            self.classes[answer]
            for answer, p in order
            if len(p) >= FEW and sum(p) / len(p) < AFFECTED
        ]

    @property
    def shown(self) -> list[int]:
        """The pictures, counted from 1, that show it most."""
        rows = self._since() if self.alarm else []
        return [at for at, *_ in sorted(rows, key=lambda row: row[-1])[:FEW]]

    @property
    def told(self) -> str:
        """A sentence; empty while there is no alarm."""
        if self._alarm is None:
            return ""
        _, began, when = self._alarm
        date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(when))
        found = (
            f"Since picture {began:,} of {self.seen:,} ({date}) pictures look different from those"
            f" taught: they are {' and '.join(self.changes)}."
        )
        if self.affected:
            found += f" Most of them are answered {naming(map(str, self.affected[:FEW]))}."
        return found

    def fields(self) -> dict[str, Any]:
        """What JSON says of it."""
        return {
            "alarm": self.alarm,
            "seen": self.seen,
            "since": self.since or None,
            "changes": self.changes,
            "affected": self.affected,
            "told": self.told or None,
        }

    def __repr__(self) -> str:
        return f"<Drift: {self.told or 'none in ' + counted(self.seen, 'picture')}>"


def rounded(values: Sequence[float]) -> list[float]:
    """As they are kept and compared, whatever a batch's rounding."""
    return [float(f"{value:.4g}") for value in values]


def _taught(calibration: Mapping[str, Any] | None) -> list[list[Any]]:
    """Of each judged picture the answer, how known it looks, and its looks; None where not kept."""
    if not calibration or calibration["temperature"] is None:
        return []
    every = calibration.get("looks") or [[] for _ in calibration["scores"]]
    found = []
    for answer, (scores, rows) in enumerate(zip(calibration["scores"], every, strict=True)):
        for i, score in enumerate(scores):
            row = (rows[i] if i < len(rows) else None) or [None] * len(LOOKS)
            found.append([answer, score, *row])
    return found
