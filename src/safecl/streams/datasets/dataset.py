"""What is known about a published dataset: where it comes from, how it lies on disk, how it is streamed.

torch is imported only by ``Dataset.read``, so that listing datasets is quick.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from pydantic.dataclasses import dataclass

from safecl.errors import SafeclError
from safecl.streams.datasets.archive import Source
from safecl.streams.pictures.decode import EXTENSIONS
from safecl.streams.settings import Protocol

if TYPE_CHECKING:
    from safecl.streams.collection import Collection

RECORD = "prepared.json"  # lies in a prepared folder: which archive, which split
PROCESSED, OFFICIAL, SEEDED = "processed", "official", "seeded"
SPLITS = {
    PROCESSED: "the split fixed in the processed archive, as the field reports it",
    OFFICIAL: "the split published with the pictures",
    SEEDED: "80 % / 20 % of every class drawn with seed 1993: not the field's split, not comparable with its numbers",
}
SPLIT_SEED = 1993
Moves: TypeAlias = list[tuple[Source, dict[str, str]]]  # where each member of a source goes


@dataclass(frozen=True)
class Archive:
    """A file as it is published. ``url`` only where software may fetch it."""

    name: str
    md5: str | None = None
    url: str | None = None


class Plan(NamedTuple):
    """Which member of which source goes where below the dataset's folder, and what split that makes."""

    split: str
    moves: Moves


def plan_processed(sources: Sequence[Source]) -> Plan:
    """Take what lies below a folder train or test, wherever in the archive that is."""
    moves = moved(sources, _below_split)
    if not any(found for _, found in moves):
        raise SafeclError(f"{sources[0].path} has no folders train/CLASS and test/CLASS with pictures.")
    return Plan(PROCESSED, moves)


def plan_official(sources: Sequence[Source]) -> Plan:
    """As processed, by the flag of the official annotations."""
    return Plan(OFFICIAL, plan_processed(sources).moves)


def plan_processed_or_seeded(sources: Sequence[Source]) -> Plan:
    """The processed archive, or the official one (``.../class/picture``), which has no split: then one is drawn."""
    moves = moved(sources, _below_split)
    if any(found for _, found in moves):
        return Plan(PROCESSED, moves)
    drawn = [(source, seeded_moves(source.names())) for source in sources]
    if not any(found for _, found in drawn):
        raise SafeclError(f"{sources[0].path} has no pictures in class folders.")
    return Plan(SEEDED, drawn)


@dataclass(frozen=True)
class Dataset:
    """``counts``: training and test pictures by split; the first is the one the paper's numbers are on.

    ``first``, ``step``: classes of the first and of every later session. ``domains``: in the order of the sessions;
    with any, the stream is domain-incremental and never shuffled. ``tested_with``: the domain that all test pictures
    are counted with. ``reader``: reads a prepared folder that is not ``train|test/[domain/]class/picture``.
    ``forgiving``: see ``decode``. ``margin``: see ``Transform``.
    """

    name: str
    title: str
    folder: str
    home: str
    classes: int
    counts: dict[str, tuple[int, int]]
    first: int
    step: int
    fetch: str  # what a person has to do to get it
    licence: str
    archives: tuple[Archive, ...] = ()
    plan: Callable[[Sequence[Source]], Plan] = plan_processed
    reader: Callable[[Path], Any] | None = None
    pitfalls: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    tested_with: str | None = None
    shuffled: bool = True
    forgiving: bool = False
    margin: float = 256 / 224

    @property
    def protocol(self) -> Protocol:
        return "domain" if self.domains else "class"

    def at(self, root: Path) -> Path:
        """The prepared folder, or a sentence on how to get it."""
        place = root / self.folder
        if not place.is_dir():
            raise SafeclError(
                f"{self.title} is not in {root} (looked for {place}); name the folder that holds it with "
                f"stream.root=DIR or SAFECL_DATA, or {self.fetch}"
            )
        return place

    def read(self, place: Path) -> "Collection":
        """The pictures in a prepared folder, as published (not turned upright); classes are the sorted folder names."""
        from safecl.streams.collection import Collection
        from safecl.streams.pictures.files import FilePictures
        from safecl.streams.sources.folder import scan

        if self.reader is not None:
            found: Collection = self.reader(place)
            return found
        depth = 1 if self.domains else 0
        train, test = (list(scan(place / part)) for part in ("train", "test"))
        for part, listed in (("train", train), ("test", test)):
            if not listed:
                raise SafeclError(f"There is no picture in {place / part}; prepare {self.name} again.")
        known = {f.folders[depth] for f in train if len(f.folders) > depth}
        strange = next((f for f in train + test if len(f.folders) <= depth or f.folders[depth] not in known), None)
        if strange is not None:
            raise SafeclError(f"The picture {strange.file.path} is in no class of {place / 'train'}.")
        train_pictures, test_pictures = (
            FilePictures(
                [f.file for f in some], [f.folders[depth] for f in some], upright=False, forgiving=self.forgiving
            )
            for some in (train, test)
        )
        return Collection(
            self.name,
            train_pictures,
            test_pictures,
            tuple(sorted(known)),
            train_domains=tuple(f.folders[0] for f in train) if self.domains else None,
            test_domains=tuple(self.tested_with or f.folders[0] for f in test) if self.domains else None,
            domains=self.domains,
            home=place,
        )


def record(place: Path) -> dict[str, object]:
    """What ``prepare`` wrote down; nothing for a folder that somebody laid out by hand."""
    try:
        found = json.loads((place / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def moved(sources: Sequence[Source], place: Callable[[str], str | None]) -> Moves:
    """Where ``place`` puts each picture, if anywhere."""
    return [
        (source, {name: to for name in pictures_of(source.names()) if (to := place(name)) is not None})
        for source in sources
    ]


def seeded_moves(names: Iterable[str]) -> dict[str, str]:
    """80 % of every class for training; the draw depends on the sorted names alone."""
    from safecl.streams.stream import split

    chosen = [name for name in sorted(pictures_of(names)) if len(PurePosixPath(name).parts) > 1]
    classes = [PurePosixPath(name).parts[-2] for name in chosen]
    test = set(split(classes, 0.2, np.random.default_rng(SPLIT_SEED))[1])
    return {
        name: f"{'test' if i in test else 'train'}/{classes[i]}/{PurePosixPath(name).name}"
        for i, name in enumerate(chosen)
    }


def pictures_of(names: Iterable[str]) -> list[str]:
    """Names of pictures, without the notes and leftovers that archives carry."""
    return [
        name
        for name in names
        if PurePosixPath(name).suffix.lower() in EXTENSIONS
        and not any(part.startswith(".") or part == "__MACOSX" for part in PurePosixPath(name).parts)
    ]


def _below_split(name: str) -> str | None:
    parts = PurePosixPath(name).parts
    at = next((i for i, part in enumerate(parts[:-2]) if part in ("train", "test")), None)
    return None if at is None else "/".join(parts[at:])
