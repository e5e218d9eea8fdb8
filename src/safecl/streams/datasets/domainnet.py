"""DomainNet: 345 classes in six domains, learned one domain after the other."""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from safecl.errors import SafeclError
from safecl.streams.datasets.archive import Source
from safecl.streams.datasets.plans import OFFICIAL, Moves, Plan, pictures_of

if TYPE_CHECKING:
    from safecl.streams.collection import Collection

DOMAINS = ("real", "quickdraw", "painting", "sketch", "infograph", "clipart")  # the order of the sessions
LISTS = tuple(f"{domain}_{part}.txt" for domain in DOMAINS for part in ("train", "test"))


def plan(sources: Sequence[Source]) -> Plan:
    """Six zips and twelve lists, packed or unpacked, in any number of sources."""
    moves: Moves = []
    for source in sources:
        names = source.names()
        found = {name: PurePosixPath(name).name for name in names if PurePosixPath(name).name in LISTS}
        for name in pictures_of(names):
            parts = PurePosixPath(name).parts
            if len(parts) >= 3 and parts[-3] in DOMAINS:
                found[name] = "/".join(parts[-3:])
        moves.append((source, found))
    there = {to for _, found in moves for to in found.values()}
    missing = [name for name in LISTS if name not in there]
    missing += [f"{domain}.zip" for domain in DOMAINS if not any(to.startswith(f"{domain}/") for to in there)]
    if missing:
        needed = "one folder with its six zips and twelve lists (the cleaned version)"
        raise SafeclError(f"DomainNet is prepared from {needed}; missing: {', '.join(missing)}.")
    return Plan(OFFICIAL, moves)


def read(place: Path) -> "Collection":
    """By the lists ``domain/class/file label``; classes are the folder names, in the order of the label numbers."""
    from safecl.streams.collection import Collection
    from safecl.streams.pictures.files import FilePictures
    from safecl.streams.pictures.find import File

    listed = {part: [line for domain in DOMAINS for line in lines(place, domain, part)] for part in ("train", "test")}
    names: dict[int, str] = {}
    for path, number in listed["train"] + listed["test"]:
        name = PurePosixPath(path).parts[1]
        if names.setdefault(number, name) != name:
            raise SafeclError(f"The lists in {place} give the label {number} to both {names[number]} and {name}.")
    pictures, domains = [], []
    for rows in listed.values():
        files = [File.at(place / path, path.partition("/")[2]) for path, _ in rows]
        if missing := [file.path for file in files if file.size < 0]:
            raise SafeclError(f"{missing[0]} is listed but missing; take lists and zips of the cleaned version.")
        pictures.append(FilePictures(files, [names[number] for _, number in rows], upright=False))
        domains.append(tuple(PurePosixPath(path).parts[0] for path, _ in rows))
    classes = tuple(names[number] for number in sorted(names))
    return Collection("domainnet", pictures[0], pictures[1], classes, domains[0], domains[1], DOMAINS, home=place)


def lines(place: Path, domain: str, part: str) -> list[tuple[str, int]]:
    path = place / f"{domain}_{part}.txt"
    try:
        rows = [row.rsplit(maxsplit=1) for row in path.read_text(encoding="utf-8").splitlines() if row.strip()]
        found = [(name, int(label)) for name, label in rows]
    except (OSError, ValueError):
        raise SafeclError(f"{path} is missing or not a list of `domain/class/file label`; prepare it again.") from None
    strange = next((name for name, _ in found if len(PurePosixPath(name).parts) != 3 or ".." in name), None)
    if strange is not None:
        raise SafeclError(f"{path} lists {strange}, which is not domain/class/file.")
    return found
