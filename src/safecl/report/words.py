"""Numbers and names, as a person reads them."""

import math
from collections.abc import Sequence

from rich import filesize

from safecl.lines import NBSP, counted
from safecl.report import table

NONE = table.NONE


def percent(value: float | None) -> str:
    """0.782 → "78.2 %"."""
    return NONE if value is None else f"{100 * value:.1f}{NBSP}%"


def standard_error(value: float, pictures: int) -> float:
    """Of an accuracy on ``pictures`` test pictures.

    That of a share with one more right and one more wrong answer, so that it is not 0 where all or
    none are right.
    """
    share = (value * pictures + 1) / (pictures + 2)
    return math.sqrt(share * (1 - share) / (pictures + 2))


def accuracy(value: float | None, pictures: int) -> str:
    """An accuracy with its standard error: 0.782, 500 → "78.2 ± 1.8 %"."""
    if value is None or not pictures:
        return NONE
    return f"{100 * value:.1f}{NBSP}±{NBSP}{100 * standard_error(value, pictures):.1f}{NBSP}%"


def bare_percent(value: float | None) -> str:
    """0.782 → "78.2", where the unit stands elsewhere."""
    return NONE if value is None else f"{100 * value:.1f}"


def points(value: float | None) -> str:
    """A difference of accuracies in percentage points: 0.031 → "3.1"."""
    return NONE if value is None else f"{100 * value:.1f}".replace("-0.0", "0.0").replace("-", "−")


def count(value: float | None) -> str:
    """12345 → "12,345"."""
    return NONE if value is None else f"{value:,.0f}"


def size(value: float | None) -> str:
    """Bytes in decimal units: 1234567 → "1.2 MB"."""
    return NONE if value is None else filesize.decimal(int(value)).replace(" ", NBSP)


def duration(seconds: float | None) -> str:
    """12.34 → "12.3 s"; 192 → "3 min 12 s"; 7260 → "2 h 1 min"."""
    if seconds is None:
        return NONE
    if round(seconds) < 60:
        return f"{seconds:.1f}{NBSP}s" if seconds < 20 else f"{seconds:.0f}{NBSP}s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}{NBSP}min {whole % 60}{NBSP}s"
    return f"{whole // 3600}{NBSP}h {whole % 3600 // 60}{NBSP}min"


def plural(number: int, word: str) -> str:
    """ "1 session", "5 sessions", "3 classes"; never broken between lines."""
    return counted(number, word).replace(" ", NBSP)


def protocol(name: str) -> str:
    """ "class-incremental", "domain-incremental" or "mixed"."""
    return name if name == "mixed" else f"{name}-incremental"


def listed(parts: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def upper_first(sentence: str) -> str:
    """The sentence with a capital first letter."""
    return sentence[:1].upper() + sentence[1:]


def short(name: str, most: int = 40) -> str:
    """A class's name in at most ``most`` characters: its beginning and its end."""
    return name if len(name) <= most else f"{name[: most - 13]}…{name[-12:]}"
