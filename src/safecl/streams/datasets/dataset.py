"""What is known about a published dataset: where it comes from, how it lies on disk, how it is
streamed.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic.dataclasses import dataclass

from safecl.atomic import read_json
from safecl.errors import SafeclError
from safecl.streams.datasets.archive import Source
from safecl.streams.datasets.plans import Plan, processed
from safecl.streams.settings import Protocol

if TYPE_CHECKING:
    from safecl.streams.collection import Collection

RECORD = "prepared.json"  # lies in a prepared folder: which archive, which split


@dataclass(frozen=True)
class Archive:
    """A file as it is published. ``url`` only where software may fetch it."""

    name: str
    md5: str | None = None
    url: str | None = None


@dataclass(frozen=True)
class Dataset:
    """``counts``: training and test pictures by split; the first is the one the paper's numbers are
    on.

    ``first``, ``step``: classes of the first and of every later session. ``domains``: in the order
    of the sessions; with any, the stream is domain-incremental and never shuffled. ``tested_with``:
    the domain that all test pictures are counted with. ``reader``: reads a prepared folder that is
    not ``train|test/[domain/]class/picture``. ``forgiving``: see ``decode``. ``margin``: see
    ``Transform``.
    """

    name: str
    title: str
    folder: str
    classes: int
    counts: dict[str, tuple[int, int]]
    first: int
    step: int
    fetch: str  # what a person has to do to get it
    licence: str
    archives: tuple[Archive, ...] = ()
    plan: Callable[[Sequence[Source]], Plan] = processed
    reader: Callable[[Path], Any] | None = None
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
            other = f"name the folder that holds {self.folder} with stream.root=DIR or SAFECL_DATA"
            raise SafeclError(
                "dataset.not-prepared", title=self.title, root=root, other=other, fetch=self.fetch
            )
        return place

    def read(self, place: Path) -> "Collection":
        """The pictures in a prepared folder, as published (not turned upright); classes are the
        sorted folder names.
        """
        # torch is imported there, and listing datasets is quick
        from safecl.streams.collection import (
            Collection,
        )
        from safecl.streams.pictures.find import class_folders
        from safecl.streams.sources.folder import labelled

        if self.reader is not None:
            found: Collection = self.reader(place)
            return found
        _, test_at, train, test, depth = class_folders(place, self.protocol)
        known = {f.folders[depth] for f in train}
        if test_at is None or not {f.folders[depth] for f in test} <= known:
            raise SafeclError("dataset.no-test", place=place, name=self.name)
        learned, held = (
            labelled(some, depth, upright=False, forgiving=self.forgiving) for some in (train, test)
        )
        learn_in = tuple(f.folders[0] for f in train) if self.domains else None
        test_in = tuple(self.tested_with or f.folders[0] for f in test) if self.domains else None
        return Collection(
            self.name,
            learned,
            held,
            tuple(sorted(known)),
            learn_in,
            test_in,
            self.domains,
            home=place,
        )


def record(place: Path) -> dict[str, object]:
    """What ``prepare`` wrote down; nothing for a folder that somebody laid out by hand."""
    return read_json(place / RECORD) or {}
