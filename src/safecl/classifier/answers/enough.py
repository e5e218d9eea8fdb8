"""How far an accuracy can be believed, and which classes more pictures would help; from a header,
without torch.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from safecl.lines import counted, naming

Z = 1.96  # standard deviations of the normal distribution that hold 95 %
PRIOR = 4.0  # wrong answers that the ratio of all classes counts as, in that of a class
RARE = 0.05  # models of which a promise need not be true
MAX_NAMED = 3  # classes that are named
HALF = (
    2.0  # pictures by which a class must be judged to count half of one that is judged by very many
)
FEW_JUDGED = 3  # pictures by which a class is judged, at which that is said
MIN_GAIN = 0.02  # of accuracy that is worth more pictures


def mean_over(classes: Sequence[Sequence[int]]) -> tuple[float, float]:
    """(the mean accuracy of the classes, the pictures that would tell it as precisely), from rows
    of judged and right.

    The share of a class that is judged by n pictures counts n / (n + 2): of two pictures it says
    little, and as much as any other it would move the mean by chance. This is the mean of shares
    drawn to their own mean, as by two pictures.
    """
    rows = [(judged, right) for judged, right, *_ in classes if judged]
    counts = [judged / (judged + HALF) for judged, _ in rows]
    shares = [count / sum(counts) for count in counts]
    mean = sum(share * right / judged for share, (judged, right) in zip(shares, rows, strict=True))
    return mean, 1 / sum(share**2 / judged for share, (judged, _) in zip(shares, rows, strict=True))


def interval(share: float, pictures: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of ``pictures``."""
    square = Z**2 / pictures
    middle = share + square / 2
    spread = math.sqrt(square * (share * (1 - share) + square / 4))
    return max((middle - spread) / (1 + square), 0.0), min((middle + spread) / (1 + square), 1.0)


def range_text(low: float, high: float) -> str:
    """ "62–81 %"."""
    return f"{100 * low:.0f}–{100 * high:.0f} %"


def accuracy_text(calibration: Mapping[str, Any]) -> str:
    """ "72 % (62–81 %)"."""
    return f"{100 * calibration['accuracy']:.0f} % ({range_text(*calibration['interval'])})"


def needed(rate: float) -> int:
    """Judged pictures from which a rate of false alarms is promised: the least of fewer is above
    the ``rate`` of new ones too often, in more than 5 % of models.
    """
    return math.ceil(math.log(RARE) / math.log1p(-rate))


def at_worst(rate: float, judged: int) -> float:
    """The rate of false alarms that one model in twenty exceeds, where the ``rate`` is kept on
    average: a threshold is one of few scores.
    """
    k = math.floor(rate * (judged + 1))
    low = rate
    high = 1.0
    for _ in range(30):
        share = (low + high) / 2
        fewer = sum(
            math.exp(
                math.lgamma(judged + 1)
                - math.lgamma(i + 1)
                - math.lgamma(judged - i + 1)
                + i * math.log(share)
                + (judged - i) * math.log1p(-share)
            )
            for i in range(k)
        )
        low, high = (share, high) if fewer > RARE else (low, share)
    return high


def promise_text(calibration: Mapping[str, Any], rate: float) -> str:
    """What is promised of the share of known pictures that are called unknown."""
    judged = calibration["pictures"]
    if judged < needed(rate):
        return (
            f"nothing is promised by {counted(judged, 'judged picture')}; from {needed(rate):,} on"
            f" at most {100 * rate:g} % are"
        )
    return (
        f"at most {100 * rate:g} % promised on average, {100 * at_worst(rate, judged):.0f} % for"
        " one model in twenty"
    )


def strangers_text(calibration: Mapping[str, Any]) -> str:
    """How many strangers are noticed, as classes that were left out tell; empty: nobody knows."""
    if not calibration.get("strangers"):
        return ""
    noticed, asked = calibration["strangers"]
    share = f"{100 * noticed / asked:.0f} % ({range_text(*interval(noticed / asked, asked))})"
    return f"of strangers that look like its classes about {share} would be noticed"


def unknown_text(calibration: Mapping[str, Any], rate: float = 0.05) -> str:
    """What can be said of the answer unknown."""
    said = (strangers_text(calibration), promise_text(calibration, rate))
    return "; ".join(filter(None, said))


def wanted(classes: Sequence[Sequence[int]]) -> list[tuple[int, float, float]]:
    """(class, accuracy, accuracy with twice the pictures) of the classes that more pictures would
    help most.

    ``classes``: by class the pictures judged, those classified correctly, and those with half of
    the pictures. A class errs less with twice its pictures as it does with all against half of
    them, drawn to the ratio of all classes. One whose interval holds an accuracy that could hardly
    be better is not named.
    """
    wrong, before = (sum(row[0] - row[i] for row in classes) for i in (1, 2))
    ratio = min((wrong + 1) / (before + 1), 1.0)
    found = []
    for place, (judged, right, half) in enumerate(classes):
        if judged and interval(right / judged, judged)[1] < 1 - MIN_GAIN:
            error = (judged - right + 0.5) / (judged + 1)
            own = min((judged - right + PRIOR * ratio) / (judged - half + PRIOR), 1.0)
            found.append((place, 1 - error, 1 - error * own))
    found.sort(key=lambda one: one[1] - one[2])
    return [one for one in found if one[2] - one[1] >= MIN_GAIN][:MAX_NAMED]


def sentences(calibration: Mapping[str, Any], counts: Mapping[Any, int]) -> list[str]:
    """Which classes more pictures would help, and which cannot be judged; ``counts``: pictures by
    class.
    """
    names = list(counts)
    told = list[str]()
    most = list[str]()
    for place, now, then in wanted(calibration["classes"]):
        have = counted(counts[names[place]], "picture")
        most.append(
            f"of {names[place]} (about {100 * (then - now):.0f} points with twice its {have})"
        )
    if most:
        told.append(f"More pictures would help most {', then '.join(most)}.")
    single = [
        str(name)
        for name, row in zip(names, calibration["classes"], strict=True)
        if counts[name] == 1 and not row[0]
    ]
    few = [
        str(name)
        for name, row in zip(names, calibration["classes"], strict=True)
        if 0 < row[0] <= FEW_JUDGED
    ]
    if few and max(row[0] for row in calibration["classes"]) > FEW_JUDGED:
        told.append(
            f"Judged by {FEW_JUDGED} pictures or fewer, so that they count less in the accuracy:"
            f" {naming(few)}."
        )
    if single:
        told.append(f"Left out of the accuracy, with one picture only: {naming(single)}.")
    return told or ["No class stands out as one that needs more pictures."]
