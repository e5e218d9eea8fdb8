"""Office-Home: 65 things of office and home in four domains, learned one domain after the other."""

from collections.abc import Sequence
from pathlib import PurePosixPath

from safecl.errors import SafeclError
from safecl.streams.datasets.archive import Source
from safecl.streams.datasets.dataset import SEEDED, Moves, Plan, pictures_of, seeded_moves

DOMAINS = ("Art", "Clipart", "Product", "Real World")  # the order of the sessions


def plan(sources: Sequence[Source]) -> Plan:
    """``…/domain/class/picture``; there is no split, so one is drawn in every domain."""
    moves: Moves = []
    there = set()
    for source in sources:
        found = {}
        for domain in DOMAINS:
            own = [name for name in pictures_of(source.names()) if PurePosixPath(name).parts[-3:-2] == (domain,)]
            there |= {domain} if own else set()
            for name, to in seeded_moves(own).items():
                part, _, rest = to.partition("/")
                found[name] = f"{part}/{domain}/{rest}"
        moves.append((source, found))
    missing = [domain for domain in DOMAINS if domain not in there]
    if missing:
        raise SafeclError(f"{sources[0].path} lacks the folders {', '.join(missing)} of Office-Home.")
    return Plan(SEEDED, moves)
