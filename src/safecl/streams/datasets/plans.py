"""Which file of a published dataset goes where in ``train|test/[domain/]class/picture``, and what
split that makes.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple, TypeAlias

from safecl.errors import SafeclError
from safecl.streams.datasets.archive import Source
from safecl.streams.pictures.kinds import EXTENSIONS, hidden

PROCESSED = "processed"
OFFICIAL = "official"
DRAWN = "drawn"
SPLITS = {
    PROCESSED: "the split fixed in the processed archive, as the field reports it",
    OFFICIAL: "the split published with the pictures",
    DRAWN: "a fifth of every class drawn for testing by safecl, as none is published",
}
TEST_FRACTION = 0.2  # of every class, where a split is drawn
SPLIT_SEED = 1993
CORE50_DOMAINS = ("s1", "s2", "s4", "s5", "s6", "s8", "s9", "s11")  # the order of the sessions
CORE50_TESTED = ("s3", "s7", "s10")
OFFICE_HOME_DOMAINS = ("Art", "Clipart", "Product", "Real World")  # the order of the sessions
# the order of the sessions
DOMAINNET_DOMAINS = (
    "real",
    "quickdraw",
    "painting",
    "sketch",
    "infograph",
    "clipart",
)
Moves: TypeAlias = list[tuple[Source, dict[str, str]]]  # where each member of a source goes


class Plan(NamedTuple):
    """Which member of which source goes where below the dataset's folder, and what split that
    makes.
    """

    split: str
    moves: Moves


def processed(sources: Sequence[Source]) -> Plan:
    """Take what lies below a folder train or test, wherever in the archive that is."""
    moves = moved(sources, _below_split)
    if not any(found for _, found in moves):
        raise SafeclError("dataset.source.no-folders", path=sources[0].path)
    return Plan(PROCESSED, moves)


def processed_or_drawn(sources: Sequence[Source]) -> Plan:
    """As processed, or the official archive of ``class/picture``, of which a split is drawn."""
    if any(found for _, found in moved(sources, _below_split)):
        return processed(sources)
    plan = Plan(DRAWN, [(one, drawn_moves(pictures_of(one.names))) for one in sources])
    if not any(found for _, found in plan.moves):
        raise SafeclError("dataset.source.no-folders", path=sources[0].path)
    return plan


def office_home(sources: Sequence[Source]) -> Plan:
    """``…/domain/class/picture``; there is no split, so one is drawn in every domain."""
    moves: Moves = []
    for source in sources:
        names = pictures_of(source.names)
        found: dict[str, str] = {}
        for domain in OFFICE_HOME_DOMAINS:
            own = [name for name in names if PurePosixPath(name).parts[-3:-2] == (domain,)]
            for name, to in drawn_moves(own).items():
                found[name] = to.replace("/", f"/{domain}/", 1)
        moves.append((source, found))
    there = {to.split("/")[1] for _, found in moves for to in found.values()}
    if missing := [domain for domain in OFFICE_HOME_DOMAINS if domain not in there]:
        raise SafeclError(
            "dataset.domains.lacking",
            path=sources[0].path,
            missing=", ".join(missing),
            title="Office-Home",
        )
    return Plan(DRAWN, moves)


def drawn_moves(names: Iterable[str]) -> dict[str, str]:
    """``train|test/class/picture`` for each ``…/class/picture``: a fifth of every class is drawn
    for testing, at least one picture of two.
    """
    import numpy as np

    random = np.random.RandomState(SPLIT_SEED)
    members: dict[str, list[str]] = {}
    for name in sorted(names):
        if name.count("/"):
            members.setdefault(PurePosixPath(name).parts[-2], []).append(name)
    moves = {}
    for label in sorted(members):
        mine = members[label]
        held = min(max(1, round(TEST_FRACTION * len(mine))), len(mine) - 1)
        tested = {mine[i] for i in random.permutation(len(mine))[:held]}
        for name in mine:
            part = "test" if name in tested else "train"
            moves[name] = f"{part}/{label}/{PurePosixPath(name).name}"
    return moves


def cub(sources: Sequence[Source]) -> Plan:
    """The processed archive, or the official one with its lists ``images.txt`` and
    ``train_test_split.txt``.
    """
    lists = contents(sources, "images.txt", "train_test_split.txt")
    if len(lists) < 2:
        return processed(sources)
    paths, training = (
        dict(line.split(maxsplit=1) for line in _lines(lists[name])) for name in sorted(lists)
    )
    parts = {"1": "train", "0": "test"}
    if strange := [path for number, path in paths.items() if training.get(number) not in parts]:
        raise SafeclError("dataset.source.no-split", path=sources[0].path, name=strange[0])
    return by_lists(
        sources, {path: f"{parts[training[number]]}/{path}" for number, path in paths.items()}
    )


def domainnet(sources: Sequence[Source]) -> Plan:
    """Six zips of ``domain/class/picture``, and for each domain two lists of ``domain/class/picture
    label``.
    """
    files = {
        f"{domain}_{part}.txt": part for domain in DOMAINNET_DOMAINS for part in ("train", "test")
    }
    lists = contents(sources, *files)
    if missing := [name for name in files if name not in lists]:
        needed = "one folder with its six zips and twelve lists (the cleaned version)"
        raise SafeclError("dataset.domainnet.lacking", needed=needed, missing=", ".join(missing))
    listed = {
        line.rpartition(" ")[0]: part
        for name, part in files.items()
        for line in _lines(lists[name])
    }
    return by_lists(sources, {path: f"{part}/{path}" for path, part in listed.items()})


def core50(sources: Sequence[Source]) -> Plan:
    """``…/place/object/picture``; three of the places are the test set."""
    parts = dict.fromkeys(CORE50_DOMAINS, "train") | dict.fromkeys(CORE50_TESTED, "test")
    names = [
        "/".join(PurePosixPath(name).parts[-3:])
        for source in sources
        for name in pictures_of(source.names)
    ]
    places = {name: name.split("/")[0] for name in names if name.count("/") == 2}
    if missing := [place for place in parts if place not in places.values()]:
        raise SafeclError(
            "dataset.domains.lacking",
            path=sources[0].path,
            missing=", ".join(missing),
            title="CORe50",
        )
    return by_lists(
        sources,
        {name: f"{parts[place]}/{name}" for name, place in places.items() if place in parts},
    )


def by_lists(sources: Sequence[Source], places: dict[str, str]) -> Plan:
    """An official split; ``places`` says where each picture goes, by its name or the last parts of
    its path.
    """
    depth = max((name.count("/") for name in places), default=0) + 1
    moves = moved(sources, lambda name: places.get("/".join(PurePosixPath(name).parts[-depth:])))
    there = {to for _, found in moves for to in found.values()}
    if absent := [name for name, to in places.items() if to not in there]:
        raise SafeclError("dataset.source.no-picture", path=sources[0].path, name=min(absent))
    return Plan(OFFICIAL, moves)


def contents(sources: Sequence[Source], *files: str) -> dict[str, bytes]:
    """The contents of files, wherever in the sources they lie, by their names."""
    every = (
        (source, name, PurePosixPath(name).name) for source in sources for name in source.names
    )
    return {
        file: (source.folder / name).read_bytes() for source, name, file in every if file in files
    }


def moved(sources: Sequence[Source], place: Callable[[str], str | None]) -> Moves:
    """Where ``place`` puts each picture, if anywhere."""
    placed = [{name: place(name) for name in pictures_of(source.names)} for source in sources]
    moves = [{name: to for name, to in found.items() if to is not None} for found in placed]
    return list(zip(sources, moves, strict=True))


def pictures_of(names: Iterable[str]) -> list[str]:
    """Names of pictures, without the notes and leftovers that archives carry."""
    visible = (name for name in names if not hidden(*name.split("/")))
    return [name for name in visible if PurePosixPath(name).suffix.lower() in EXTENSIONS]


def _lines(data: bytes) -> list[str]:
    return [line for line in data.decode("utf-8").splitlines() if line.strip()]


def _below_split(name: str) -> str | None:
    parts = PurePosixPath(name).parts
    at = next((i for i, part in enumerate(parts[:-2]) if part in ("train", "test")), None)
    return None if at is None else "/".join(parts[at:])
