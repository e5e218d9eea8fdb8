"""Pictures from anything a person holds: a folder, a table, paths, arrays, images, a torch or
Hugging Face dataset.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from safecl.classifier.modelfile.history import as_labels
from safecl.classifier.modelfile.schema import Header
from safecl.errors import SafeclError
from safecl.streams.pictures.cache import CachedPictures, Store, cache_folder, cached
from safecl.streams.pictures.decode import is_one, listed
from safecl.streams.pictures.files import FilePictures
from safecl.streams.pictures.find import File, Only, mark_of, picture_files, printable
from safecl.streams.pictures.images import Label, Pictures, Selection, Transform
from safecl.streams.pictures.kinds import EXTENSIONS, FURTHER
from safecl.streams.pictures.shards import SHARD
from safecl.streams.sources.arrays import (
    Images,
    array_pictures,
    hub_pictures,
    plain_label,
    torch_pictures,
)
from safecl.streams.sources.folder import read_folder
from safecl.streams.sources.table import read_manifest

MAX_HELD_BYTES = 512 << 20  # bytes of decoded pictures that are held in RAM


class Relabelled(Selection):
    """The same pictures with other labels."""

    def __init__(self, pictures: Pictures, labels: Sequence[Label]) -> None:
        super().__init__([pictures])
        self.labels = list(labels)

    def subset(self, indices: Sequence[int]) -> Pictures:
        return Selection([self], indices)


def as_meant(pictures: Pictures, header: Header) -> Pictures:
    """The pictures with the labels that a model has for theirs."""
    labels = as_labels(header, pictures.labels)
    return pictures if labels == list(pictures.labels) else Relabelled(pictures, labels)


def labelled(
    data: Any, labels: Sequence[Any] | None = None, only: Only = "train"
) -> tuple[Pictures, str]:
    """Pictures of what ``ContinualClassifier.learn`` takes, and a name for them; unreadable files
    are omitted.

    ``only``: the half that is read of a folder or a table that is split.
    """
    if labels is not None and isinstance(data, Pictures | str | os.PathLike):
        raise SafeclError("pictures.labels.own")
    if isinstance(data, Pictures):
        return data, "pictures"
    data = listed(_no_loader(data))
    labels = listed(labels)
    if labels is None and isinstance(data, str | os.PathLike) and data != "":
        return _from_path(Path(data).expanduser(), only)
    if (
        labels is None
        and isinstance(data, tuple)
        and len(data) == 2
        and isinstance(data[0], np.ndarray | Tensor)
    ):
        data, labels = data
    if labels is None and hasattr(data, "features") and hasattr(data, "column_names"):
        return hub_pictures(data), "dataset"
    if labels is None and isinstance(data, list | tuple):
        if not all(isinstance(item, tuple | list) and len(item) == 2 for item in data):
            raise SafeclError("pictures.no-pairs")
        data, labels = [item[0] for item in data], [item[1] for item in data]
    if labels is None:
        several = (
            hasattr(data, "__len__")
            and hasattr(data, "__getitem__")
            and not isinstance(data, Mapping)
        )
        if not several or isinstance(data, np.ndarray | Tensor):
            given = type(data).__name__
            arrays = isinstance(data, np.ndarray | Tensor)
            remedy = (
                "give one label per picture"
                if arrays
                else "give a list of pairs (picture, label), or a dataset"
            )
            raise SafeclError("pictures.labels.missing", given=given, remedy=remedy)
        found: Pictures = torch_pictures(data)
    else:
        found = _with_labels(data, labels)
    if not len(found):
        raise SafeclError("pictures.none-given")
    return found, type(data).__name__


def unlabelled(data: Any) -> Pictures:
    """Pictures without labels: one picture or path, a folder of pictures, or any collection of
    them.
    """
    data = listed(_no_loader(data))
    if isinstance(data, Pictures):
        return data
    if isinstance(data, str | os.PathLike):
        return FilePictures(
            files := list(picture_files(Path(data).expanduser())), [""] * len(files)
        )
    if is_one(data):
        return Images([data], [""])
    if isinstance(data, np.ndarray | Tensor):
        return array_pictures(data, [""] * len(data))
    if hasattr(data, "features") and hasattr(data, "column_names"):
        return hub_pictures(data)
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise SafeclError("pictures.no-picture", name=type(data).__name__)
    items = [
        item[0] if isinstance(item, tuple) else item for item in (data[i] for i in range(len(data)))
    ]
    return _with_labels(items, [""] * len(items))


def _no_loader(data: Any) -> Any:
    """Refuse a torch DataLoader, whose items are batches, and may be crops that differ from time to
    time.
    """
    if isinstance(data, torch.utils.data.DataLoader):
        raise SafeclError("pictures.loader")
    return data


def ready(pictures: Pictures, transform: Transform, home: Path | None = None) -> Pictures:
    """The pictures with their decoded views held in RAM, or on disk where there are too many."""
    side = pictures.side(transform)
    if 3 * len(pictures) * (transform.size**2 + side**2) <= MAX_HELD_BYTES:
        return CachedPictures(
            pictures, Store({"plain": transform.size, "canvas": side}, len(pictures)), transform
        )
    folder = cache_folder(home)
    return pictures if folder is None else cached(pictures, transform, folder)


def hashes(pictures: Pictures) -> Tensor:
    """64 bits of each picture's content: (N,)."""
    return torch.tensor(
        [mark_of(pictures.digest(i)) for i in range(len(pictures))], dtype=torch.int64
    )


def _from_path(path: Path, only: Only) -> tuple[Pictures, str]:
    name = printable(path.resolve().name)
    if path.is_file() and path.suffix.lower() != SHARD:
        if path.suffix.lower() in EXTENSIONS | FURTHER.keys():
            raise SafeclError("pictures.folder.picture", path=printable(path))
        if path.suffix.lower() != ".csv":
            raise SafeclError("pictures.source.unknown", path=printable(path))
        found = read_manifest(
            path, only=only, test_fraction=0.0, unreadable="skip", duplicates="allow"
        )
    else:
        found = read_folder(
            path, only=only, test_fraction=0.0, unreadable="skip", duplicates="allow"
        )
    return found.train, name


def _with_labels(data: Any, labels: Sequence[Any]) -> Pictures:
    if isinstance(data, np.ndarray | Tensor):
        return array_pictures(data, labels)
    items = list(data)
    if len(items) != len(labels):
        raise SafeclError("pictures.labels.count", pictures=len(items), labels=len(labels))
    named = [plain_label(label, f"picture {i}") for i, label in enumerate(labels)]
    others = [i for i, item in enumerate(items) if not isinstance(item, str | os.PathLike | File)]
    if items and not others:
        files = [
            item if isinstance(item, File) else File.at(os.path.expanduser(item)) for item in items
        ]
        return FilePictures(files, named)
    if len(others) < len(items):
        kind = type(items[others[0]]).__name__
        raise SafeclError("pictures.forms", place=others[0], kind=kind)
    return Images(items, named)
