"""The layouts that datasets share: ``train|test/class/picture``, by torchvision's ImageFolder rule, or with domains."""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from safecl.errors import SafeclError
from safecl.streams.datasets.archive import Source
from safecl.streams.datasets.dataset import PROCESSED, SEEDED, Plan
from safecl.streams.pictures.decode import EXTENSIONS

if TYPE_CHECKING:
    from safecl.streams.collection import Collection
    from safecl.streams.pictures.files import FilePictures
    from safecl.streams.sources.folder import Found

SPLIT_SEED = 1993


def read_image_folder(place: Path, name: str, *, forgiving: bool = False) -> "Collection":
    """Classes are the sorted folder names, whatever is inside; pictures are as published (not turned upright)."""
    from safecl.streams.collection import Collection
    from safecl.streams.sources.folder import scan

    train, test = (list(scan(place / part)) for part in ("train", "test"))
    for part, found in (("train", train), ("test", test)):
        if not found:
            raise SafeclError(f"There is no picture in {place / part}; prepare {name} again.")
    classes = tuple(sorted({f.folders[0] for f in train if f.folders}))
    strange = next((f for f in train + test if not f.folders or f.folders[0] not in classes), None)
    if strange is not None:
        raise SafeclError(f"The picture {strange.file.path} is in no class of {place / 'train'}.")
    return Collection(name, _pictures(train, forgiving), _pictures(test, forgiving), classes, home=place)


def read_domains(place: Path, name: str, domains: tuple[str, ...], tested_with: str | None = None) -> "Collection":
    """``train|test/domain/class/picture``. ``tested_with``: the domain that all test pictures count with, if one."""
    from safecl.streams.collection import Collection

    listed = {part: _in_domains(place / part, name) for part in ("train", "test")}
    classes = tuple(sorted({f.folders[1] for f in listed["train"]}))
    strange = next((f for f in listed["test"] if f.folders[1] not in classes), None)
    if strange is not None:
        raise SafeclError(f"The picture {strange.file.path} is in no class of {place / 'train'}.")
    return Collection(
        name,
        _pictures(listed["train"], False, 1),
        _pictures(listed["test"], False, 1),
        classes,
        train_domains=tuple(f.folders[0] for f in listed["train"]),
        test_domains=tuple(tested_with or f.folders[0] for f in listed["test"]),
        domains=domains,
        home=place,
    )


def _in_domains(place: Path, name: str) -> "list[Found]":
    from safecl.streams.sources.folder import scan

    found = [f for f in scan(place) if len(f.folders) > 1]
    if not found:
        raise SafeclError(f"There is no picture in {place}; prepare {name} again.")
    return found


def _pictures(found: "Sequence[Found]", forgiving: bool, level: int = 0) -> "FilePictures":
    from safecl.streams.pictures.files import FilePictures

    return FilePictures([f.file for f in found], [f.folders[level] for f in found], upright=False, forgiving=forgiving)


def plan_processed(sources: Sequence[Source]) -> Plan:
    """Take what lies below a folder train or test, wherever in the archive that is."""
    moves = [(source, processed_moves(source.names())) for source in sources]
    if not any(found for _, found in moves):
        raise SafeclError(f"{sources[0].path} has no folders train/CLASS and test/CLASS with pictures.")
    return Plan(PROCESSED, moves)


def plan_processed_or_seeded(sources: Sequence[Source]) -> Plan:
    """The processed archive, or the official one (``.../class/picture``), which has no split: then one is drawn."""
    moves = [(source, processed_moves(source.names())) for source in sources]
    if any(found for _, found in moves):
        return Plan(PROCESSED, moves)
    drawn = [(source, seeded_moves(source.names())) for source in sources]
    if not any(found for _, found in drawn):
        raise SafeclError(f"{sources[0].path} has no pictures in class folders.")
    return Plan(SEEDED, drawn)


def processed_moves(names: Sequence[str]) -> dict[str, str]:
    moves = {}
    for name in pictures_of(names):
        parts = PurePosixPath(name).parts
        at = next((i for i, part in enumerate(parts[:-2]) if part in ("train", "test")), None)
        if at is not None:
            moves[name] = "/".join(parts[at:])
    return moves


def seeded_moves(names: Sequence[str]) -> dict[str, str]:
    """80 % of every class for training; the draw depends on the sorted names alone."""
    from safecl.streams.stream import split

    chosen = [name for name in sorted(pictures_of(names)) if len(PurePosixPath(name).parts) > 1]
    classes = [PurePosixPath(name).parts[-2] for name in chosen]
    _, hold = split(classes, 0.2, np.random.default_rng(SPLIT_SEED))
    test = set(hold)
    return {
        name: f"{'test' if i in test else 'train'}/{classes[i]}/{PurePosixPath(name).name}"
        for i, name in enumerate(chosen)
    }


def pictures_of(names: Sequence[str]) -> list[str]:
    """Names of pictures, without the notes and leftovers that archives carry."""
    return [
        name
        for name in names
        if PurePosixPath(name).suffix.lower() in EXTENSIONS
        and not any(part.startswith(".") or part == "__MACOSX" for part in PurePosixPath(name).parts)
    ]
