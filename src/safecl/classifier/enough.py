"""How far an accuracy can be believed, and which classes more pictures would help; from a header, without torch."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from safecl.lines import counted, naming

Z = 1.96  # standard deviations of the normal distribution that hold 95 %
PRIOR = 4.0  # wrong answers that the ratio of all classes counts as, in that of a class
MAX_NAMED = 3  # classes that are named
MIN_GAIN = 0.02  # of accuracy that is worth more pictures


def interval(share: float, pictures: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of ``pictures``."""
    square = Z**2 / pictures
    middle, spread = share + square / 2, math.sqrt(square * (share * (1 - share) + square / 4))
    return max((middle - spread) / (1 + square), 0.0), min((middle + spread) / (1 + square), 1.0)


def range_text(low: float, high: float) -> str:
    """ "62–81 %"."""
    return f"{100 * low:.0f}–{100 * high:.0f} %"


def accuracy_text(calibration: Mapping[str, Any]) -> str:
    """ "72 % (62–81 %)"."""
    return f"{100 * calibration['accuracy']:.0f} % ({range_text(*calibration['interval'])})"


def wanted(classes: Sequence[Sequence[int]]) -> list[tuple[int, float, float]]:
    """(class, accuracy, accuracy with twice the pictures) of the classes that more pictures would help most.

    ``classes``: by class the pictures judged, those classified correctly, and those with half of the pictures. A class
    errs less with twice its pictures as it does with all against half of them, drawn to the ratio of all classes. One
    whose interval holds an accuracy that could hardly be better is not named.
    """
    wrong, before = (sum(row[0] - row[i] for row in classes) for i in (1, 2))
    ratio, found = min((wrong + 1) / (before + 1), 1.0), []
    for place, (judged, right, half) in enumerate(classes):
        if judged and interval(right / judged, judged)[1] < 1 - MIN_GAIN:
            error = (judged - right + 0.5) / (judged + 1)
            own = min((judged - right + PRIOR * ratio) / (judged - half + PRIOR), 1.0)
            found.append((place, 1 - error, 1 - error * own))
    found.sort(key=lambda one: one[1] - one[2])
    return [one for one in found if one[2] - one[1] >= MIN_GAIN][:MAX_NAMED]


def sentences(calibration: Mapping[str, Any], counts: Mapping[Any, int]) -> list[str]:
    """Which classes more pictures would help, and which cannot be judged; ``counts``: pictures by class."""
    names, told, most = list(counts), list[str](), list[str]()
    for place, now, then in wanted(calibration["classes"]):
        have = counted(counts[names[place]], "picture")
        most.append(f"of {names[place]} (about {100 * (then - now):.0f} points with twice its {have})")
    if most:
        told.append(f"More pictures would help most {', then '.join(most)}.")
    single = [
        str(name) for name, row in zip(names, calibration["classes"], strict=True) if counts[name] == 1 and not row[0]
    ]
    if single:
        told.append(f"Left out of the accuracy, with one picture only: {naming(single)}.")
    return told or ["No class stands out as one that needs more pictures."]
