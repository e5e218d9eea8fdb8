"""Office-Home: 65 things of office and home in four domains, learned one domain after the other."""

from collections.abc import Sequence
from functools import partial
from pathlib import PurePosixPath

from safecl.errors import SafeclError
from safecl.streams.datasets.archive import Source
from safecl.streams.datasets.dataset import SEEDED, Archive, Dataset, Plan
from safecl.streams.datasets.layout import pictures_of, read_domains, seeded_moves

DOMAINS = ("Art", "Clipart", "Product", "Real World")  # the order of the sessions


def plan_office_home(sources: Sequence[Source]) -> Plan:
    """``…/domain/class/picture``; there is no split, so one is drawn in every domain."""
    moves: list[tuple[Source, dict[str, str]]] = []
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


OFFICE_HOME = Dataset(
    name="office-home",
    title="Office-Home",
    folder="office-home",
    home="https://www.hemanthdv.org/officeHomeDataset.html",
    classes=65,
    counts={SEEDED: (12_470, 3_118)},
    first=65,
    step=65,
    archives=(Archive("OfficeHomeDataset_10072016.zip"),),
    fetch="fetch OfficeHomeDataset_10072016.zip from the page hemanthdv.org/officeHomeDataset.html and run "
    "`safecl data prepare office-home --from OfficeHomeDataset_10072016.zip`.",
    licence="non-commercial research and education; the pictures belong to their makers",
    plan=plan_office_home,
    read=partial(read_domains, name="office-home", domains=DOMAINS),
    pitfalls=(
        "There is no official split: 80 % of every class of a domain are drawn for training, so numbers are not "
        "comparable with those on other splits.",
    ),
    protocol="domain",
    domains=DOMAINS,
    shuffled=False,
)
