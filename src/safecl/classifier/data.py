"""Pictures from anything a person holds: a folder, a table, paths, arrays, images, a torch or Hugging Face dataset."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from safecl.errors import SafeclError
from safecl.streams.pictures.cache import CachedPictures, Store, cache_folder, cached
from safecl.streams.pictures.decode import EXTENSIONS, FURTHER, is_one, listed
from safecl.streams.pictures.files import FilePictures
from safecl.streams.pictures.find import File, mark_of, picture_files, printable
from safecl.streams.pictures.images import Pictures, Transform
from safecl.streams.pictures.shards import SHARD
from safecl.streams.sources.arrays import Images, array_pictures, hub_pictures, plain_label, torch_pictures
from safecl.streams.sources.folder import read_folder
from safecl.streams.sources.table import read_manifest

MAX_HELD_BYTES = 512 << 20  # bytes of decoded pictures that are held in RAM


def labelled(data: Any, labels: Sequence[Any] | None = None) -> tuple[Pictures, str]:
    """Pictures of what ``ContinualClassifier.learn`` takes, and a name for them; unreadable files are omitted."""
    if isinstance(data, Pictures):
        return data, "pictures"
    data, labels = listed(data), listed(labels)
    if labels is None and isinstance(data, str | os.PathLike) and data != "":
        return _from_path(Path(data).expanduser())
    if labels is None and isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], np.ndarray | Tensor):
        data, labels = data
    if labels is None and hasattr(data, "features") and hasattr(data, "column_names"):
        return hub_pictures(data), "dataset"
    if labels is None and isinstance(data, list | tuple):
        if not all(isinstance(item, tuple | list) and len(item) == 2 for item in data):
            raise SafeclError("A list of pictures to learn from must hold pairs (picture, label).")
        data, labels = [item[0] for item in data], [item[1] for item in data]
    if labels is None:
        if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")) or isinstance(data, np.ndarray | Tensor):
            raise SafeclError(
                f"There are no labels for the pictures, which are a {type(data).__name__}; give one label per picture."
            )
        found: Pictures = torch_pictures(data)
    else:
        found = _with_labels(data, labels)
    if not len(found):
        raise SafeclError("There is no picture to learn from: an empty collection was given.")
    return found, type(data).__name__


def unlabelled(data: Any) -> Pictures:
    """Pictures without labels: one picture or path, a folder of pictures, or any collection of them."""
    data = listed(data)
    if isinstance(data, Pictures):
        return data
    if isinstance(data, str | os.PathLike):
        return FilePictures(files := list(picture_files(Path(data).expanduser())), [""] * len(files))
    if is_one(data):
        return Images([data], [""])
    if isinstance(data, np.ndarray | Tensor):
        return array_pictures(data, [""] * len(data))
    if hasattr(data, "features") and hasattr(data, "column_names"):
        return hub_pictures(data)
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise SafeclError(f"A {type(data).__name__} is no picture; give paths, images, arrays or a dataset.")
    items = [item[0] if isinstance(item, tuple) else item for item in (data[i] for i in range(len(data)))]
    return _with_labels(items, [""] * len(items))


def ready(pictures: Pictures, transform: Transform, home: Path | None = None) -> Pictures:
    """The pictures with their decoded views held in RAM, or on disk where there are too many."""
    side = pictures.side(transform)
    if 3 * len(pictures) * (transform.size**2 + side**2) <= MAX_HELD_BYTES:
        return CachedPictures(pictures, Store({"plain": transform.size, "canvas": side}, len(pictures)), transform)
    folder = cache_folder(home)
    return pictures if folder is None else cached(pictures, transform, folder)


def hashes(pictures: Pictures) -> Tensor:
    """64 bits of each picture's content: (N,)."""
    return torch.tensor([mark_of(pictures.digest(i)) for i in range(len(pictures))], dtype=torch.int64)


def _from_path(path: Path) -> tuple[Pictures, str]:
    name = printable(path.resolve().name)
    if path.is_file() and path.suffix.lower() != SHARD:
        if path.suffix.lower() in EXTENSIONS | FURTHER.keys():
            raise SafeclError(f"{printable(path)} is a picture; give a folder with one folder of pictures per class.")
        if path.suffix.lower() != ".csv":
            raise SafeclError(f"{printable(path)} is neither a folder of class folders nor a CSV table or tar shard.")
        return read_manifest(path, test_fraction=0.0, unreadable="skip", duplicates="allow").train, name
    return read_folder(path, test_fraction=0.0, unreadable="skip", duplicates="allow").train, name


def _with_labels(data: Any, labels: Sequence[Any]) -> Pictures:
    if isinstance(data, np.ndarray | Tensor):
        return array_pictures(data, labels)
    items = list(data)
    if len(items) != len(labels):
        raise SafeclError(f"There are {len(items)} pictures and {len(labels)} labels; give one label per picture.")
    named = [plain_label(label, f"picture {i}") for i, label in enumerate(labels)]
    others = [i for i, item in enumerate(items) if not isinstance(item, str | os.PathLike | File)]
    if items and not others:
        files = [item if isinstance(item, File) else File.at(os.path.expanduser(item)) for item in items]
        return FilePictures(files, named)
    if len(others) < len(items):
        kind = type(items[others[0]]).__name__
        raise SafeclError(f"Picture {others[0]} is a {kind}, and others are paths; give all pictures in one form.")
    return Images(items, named)
