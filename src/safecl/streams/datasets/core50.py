"""CORe50: 50 objects, filmed in eleven places; learned place after place, tested in three others."""

from collections.abc import Sequence
from pathlib import PurePosixPath

from safecl.errors import SafeclError
from safecl.streams.datasets.archive import Source
from safecl.streams.datasets.dataset import OFFICIAL, Plan, moved

DOMAINS = ("s1", "s2", "s4", "s5", "s6", "s8", "s9", "s11")  # the order of the sessions
TESTED = ("s3", "s7", "s10")


def plan(sources: Sequence[Source]) -> Plan:
    """``…/place/object/picture``; three of the places are the test set."""

    def to(name: str) -> str | None:
        place = PurePosixPath(name).parts[-3:]
        if len(place) < 3 or place[0] not in DOMAINS + TESTED:
            return None
        return "/".join(["test" if place[0] in TESTED else "train", *place])

    moves = moved(sources, to)
    there = {to.split("/")[1] for _, found in moves for to in found.values()}
    missing = [place for place in DOMAINS + TESTED if place not in there]
    if missing:
        raise SafeclError(f"{sources[0].path} lacks the folders {', '.join(missing)} of CORe50.")
    return Plan(OFFICIAL, moves)
