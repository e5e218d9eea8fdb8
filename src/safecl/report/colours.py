"""The colours of figures and pages. Those of the light page become CSS variables that the dark page
sets anew.
"""

from collections.abc import Iterable
from itertools import cycle
from typing import NamedTuple


class Colour(NamedTuple):
    """A colour on white, its partner on a dark page, and a marker, so that no line is told by hue
    alone.
    """

    light: str
    dark: str
    marker: str


# Told apart under the common colour-vision deficiencies; each has a contrast of 3:1 or more to its
# page.
COLOURS = {
    "safe": Colour("#0068b0", "#5ab0f0", "o"),
    "slow": Colour("#00866a", "#2fc79f", "s"),
    "fast": Colour("#b0509a", "#e394cc", "^"),
    "ranpac": Colour("#c76a00", "#f5a142", "D"),
    "finetune": Colour("#68707d", "#a3abb8", "v"),
}
SPARE = (
    Colour("#7a5c00", "#e3c34a", "P"),
    Colour("#0e7f8c", "#57cbd8", "X"),
    Colour("#7d55b5", "#bd9ceb", "p"),
    Colour("#a3333d", "#f08a92", "h"),
    Colour("#3f6212", "#a8cf68", "*"),
)
PALETTE = (*COLOURS.values(), *SPARE)  # for classes, terms and phases
INK = "#2b3440"
GRID = "#dde2e8"
DARK = {INK: "#d7dde5", GRID: "#333b46", **{colour.light: colour.dark for colour in PALETTE}}


def variable(light: str) -> str:
    """The CSS variable of a colour: ``--f-0068b0``."""
    return f"--f-{light[1:]}"


def theme() -> str:
    """The CSS declarations of all colours."""
    return " ".join(
        f"{variable(light)}: light-dark({light}, {dark});" for light, dark in DARK.items()
    )


def paired(names: Iterable[str]) -> dict[str, Colour]:
    """A colour for each name: its own where it has one, else one that no other name here has, as
    far as they reach.
    """
    distinct = dict.fromkeys(names)
    own = {name: COLOURS[name] for name in distinct if name in COLOURS}
    others = cycle([colour for colour in (*SPARE, *PALETTE) if colour not in own.values()])
    return {name: own.get(name) or next(others) for name in distinct}
