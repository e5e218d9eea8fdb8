"""CORe50: 50 objects, filmed in eleven places; learned place after place, tested in three others."""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from safecl.errors import SafeclError
from safecl.streams.datasets.archive import Source
from safecl.streams.datasets.dataset import OFFICIAL, Archive, Dataset, Plan
from safecl.streams.datasets.layout import pictures_of, read_domains

if TYPE_CHECKING:
    from safecl.streams.collection import Collection

DOMAINS = ("s1", "s2", "s4", "s5", "s6", "s8", "s9", "s11")  # the order of the sessions
TESTED = ("s3", "s7", "s10")


def plan_core50(sources: Sequence[Source]) -> Plan:
    """``…/place/object/picture``; three of the places are the test set."""
    moves: list[tuple[Source, dict[str, str]]] = []
    for source in sources:
        found = {}
        for name in pictures_of(source.names()):
            parts = PurePosixPath(name).parts
            if len(parts) >= 3 and parts[-3] in DOMAINS + TESTED:
                found[name] = "/".join(["test" if parts[-3] in TESTED else "train", *parts[-3:]])
        moves.append((source, found))
    there = {to.split("/")[1] for _, found in moves for to in found.values()}
    missing = [place for place in DOMAINS + TESTED if place not in there]
    if missing:
        raise SafeclError(f"{sources[0].path} lacks the folders {', '.join(missing)} of CORe50.")
    return Plan(OFFICIAL, moves)


def read_core50(place: Path) -> "Collection":
    """All test pictures belong to the first session: they show places that no session brings."""
    return read_domains(place, "core50", DOMAINS, tested_with=DOMAINS[0])


CORE50 = Dataset(
    name="core50",
    title="CORe50",
    folder="core50",
    home="https://vlomonaco.github.io/core50",
    classes=50,
    counts={OFFICIAL: (119_894, 44_972)},
    first=50,
    step=50,
    archives=(
        Archive(
            "core50_128x128.zip",
            url="http://bias.csr.unibo.it/maltoni/download/core50/core50_128x128.zip",
        ),
    ),
    fetch="run `safecl data prepare core50 --download` (5 GB), or fetch core50_128x128.zip and run "
    "`safecl data prepare core50 --from core50_128x128.zip`.",
    licence="CC BY 4.0",
    plan=plan_core50,
    read=read_core50,
    pitfalls=(
        "One test set for all sessions, in places that are never learned: it is counted with the first session, so "
        "numbers of single sessions mean nothing.",
        "Neighbouring frames of a film are nearly the same picture.",
    ),
    protocol="domain",
    domains=DOMAINS,
    shuffled=False,
)
