"""What is known about a published dataset: where it comes from, how it lies on disk, how it is streamed.

Facts are read without torch, so that listing datasets is quick: what reads pictures is imported by ``Dataset.read``.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from safecl.errors import SafeclError
from safecl.streams.datasets.archive import Source
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


@dataclass(frozen=True)
class Archive:
    """A file as it is published. ``url`` only where software may fetch it."""

    name: str
    md5: str | None = None
    url: str | None = None


@dataclass(frozen=True)
class Plan:
    """Which member of which source goes where below the dataset's folder, and what split that makes."""

    split: str
    moves: Sequence[tuple[Source, dict[str, str]]]


@dataclass(frozen=True)
class Dataset:
    """``counts``: training and test pictures by split; the first is the one the paper's numbers are on.

    ``margin``: as in ``streams.images.Transform``.
    """

    name: str
    title: str
    folder: str
    home: str
    classes: int
    counts: dict[str, tuple[int, int]]
    first: int
    step: int
    archives: tuple[Archive, ...]
    fetch: str  # what a person has to do to get it
    licence: str
    plan: Callable[[Sequence[Source]], Plan]
    read: "Callable[[Path], Collection]"
    pitfalls: tuple[str, ...] = ()
    protocol: Protocol = "class"
    domains: tuple[str, ...] = ()  # in the order of the sessions, where the protocol is domain
    shuffled: bool = True
    margin: float = 256 / 224

    def at(self, root: Path) -> Path:
        """The prepared folder, or a sentence on how to get it."""
        place = root / self.folder
        if not place.is_dir():
            raise SafeclError(
                f"{self.title} is not in {root} (looked for {place}); name the folder that holds it with "
                f"stream.root=DIR or SAFECL_DATA, or {self.fetch}"
            )
        return place


def record(place: Path) -> dict[str, object]:
    """What ``prepare`` wrote down; nothing for a folder that somebody laid out by hand."""
    try:
        found = json.loads((place / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
