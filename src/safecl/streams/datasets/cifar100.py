"""CIFAR-100: 100 classes of 32-pixel pictures, enlarged to 224."""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from safecl.errors import SafeclError
from safecl.streams.datasets.archive import Source
from safecl.streams.datasets.plans import OFFICIAL, Plan

if TYPE_CHECKING:
    from safecl.streams.collection import Collection

FILES = ("train", "test", "meta")


def plan(sources: Sequence[Source]) -> Plan:
    for source in sources:
        found = {PurePosixPath(name).name: name for name in source.names}
        if set(FILES) <= found.keys():
            return Plan(OFFICIAL, [(source, {found[name]: name for name in FILES})])
    raise SafeclError("dataset.cifar.lacking", path=sources[0].path)


def read(place: Path) -> "Collection":
    """Classes are numbered alphabetically and labelled by their names; torchvision opens no pickle
    of another md5.
    """
    from torchvision.datasets import CIFAR100

    from safecl.streams.collection import Collection
    from safecl.streams.pictures.images import ArrayPictures

    try:
        parts = [CIFAR100(place.parent, train=train) for train in (True, False)]
    except RuntimeError:
        raise SafeclError("dataset.cifar.not-prepared", place=place) from None
    names = parts[0].classes
    train, test = (
        ArrayPictures(np.ascontiguousarray(part.data), [names[label] for label in part.targets])
        for part in parts
    )
    return Collection("cifar100", train, test, tuple(names), home=place)
