"""Decoded views kept on disk as uint8, so that each picture is decoded once.

Several runs may read and fill a store at the same time: a view is used only if the checksum written
after it fits, so what a killed run, a torn write or a full disk left behind is decoded again.
"""

import hashlib
import os
import shutil
import tempfile
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from safecl.errors import SafeclError
from safecl.streams.pictures.images import Pictures, Selection, Transform, canvas_view, plain_view

FOLDER = ".safecl-cache"
VERSION = 7  # of the format and of decoding; stores of another version are not used, and evicted
GIB = 2**30


class Store:
    """Views of ``count`` pictures in one folder, or in RAM. ``sides``: the side of each view that
    is kept.
    """

    def __init__(self, sides: dict[str, int], count: int, folder: Path | None = None) -> None:
        def array(name: str, dtype: type, *shape: int) -> np.ndarray:
            return (
                np.zeros(shape, dtype)
                if folder is None
                else np.memmap(folder / name, dtype, "r+", shape=shape)
            )

        self.sides = sides
        self.count = count
        self.folder = folder
        self.broken = False
        # One checksum per view (0: missing) of the view and of the picture's shape on its canvas.
        self.marks = array("marks", np.uint32, count, len(sides))
        self.shapes = array("shapes", np.float32, count, 3)
        self.views = {
            view: array(view, np.uint8, count, 3, side, side) for view, side in sides.items()
        }
        self._trusted = np.zeros((count, len(sides)), dtype=bool)

    def there(self, view: str, index: int) -> bool:
        """Whether a view is there and whole; its checksum is compared once per process."""
        if index >= self.count:
            return False
        at = index, list(self.sides).index(view)
        if not self._trusted[at] and self.marks[at]:
            self._trusted[at] = self.marks[at] == checksum(
                self.views[view][index], self.shapes[index]
            )
        return bool(self._trusted[at])

    def put(self, index: int, views: dict[str, np.ndarray], shape: np.ndarray) -> None:
        if index >= self.count or self.broken:
            return
        try:
            for column, view in enumerate(self.sides):
                data = np.ascontiguousarray(views[view])
                if self.folder is None:
                    self.views[view][index] = data
                else:
                    write_at(self.folder / view, data, index * data.nbytes)
                self.shapes[index] = shape
                self.marks[index, column] = checksum(data, self.shapes[index])
                self._trusted[index, column] = True
        except OSError as error:  # a full disk: from here on nothing more is cached
            self.broken = True
            why = f"The picture cache cannot be written ({error.strerror})"
            warnings.warn(f"{why}: the rest is decoded each time.", stacklevel=2)


class CachedPictures(Selection):
    """Another collection read through a store; a picture that it lacks is decoded and all its views
    are kept.
    """

    def __init__(self, pictures: Pictures, store: Store, transform: Transform) -> None:
        super().__init__([pictures])
        self.store = store
        self.transform = transform

    def subset(self, indices: Sequence[int]) -> Pictures:
        return Selection([self], indices)

    def plain(self, indices: Sequence[int], transform: Transform) -> Tensor:
        if transform != self.transform or "plain" not in self.store.sides:
            return super().plain(indices, transform)
        return torch.from_numpy(np.stack([self._read("plain", int(i))[0] for i in indices]))

    def canvas(self, indices: Sequence[int], transform: Transform) -> tuple[Tensor, Tensor]:
        if transform != self.transform or "canvas" not in self.store.sides:
            return super().canvas(indices, transform)
        squares, shapes = zip(*(self._read("canvas", int(i)) for i in indices), strict=True)
        return torch.from_numpy(np.stack(squares)), torch.from_numpy(np.stack(shapes))

    def _read(self, view: str, index: int) -> tuple[np.ndarray, np.ndarray]:
        """The view and the shape of a picture."""
        if self.store.there(view, index):
            return self.store.views[view][index], self.store.shapes[index]
        image = self.reduced(index, self.transform.enough)
        views = dict[str, np.ndarray]()
        shape = np.ones(3, dtype=np.float32)
        if "canvas" in self.store.sides:
            square, on_canvas = canvas_view(image, self.store.sides["canvas"])
            views["canvas"], shape = square.numpy(), on_canvas.numpy()
        if "plain" in self.store.sides:
            views["plain"] = plain_view(image, self.transform).numpy()
        self.store.put(index, views, shape)
        return views[view], shape


def cached(
    pictures: Pictures,
    transform: Transform,
    folder: Path,
    views: Sequence[str] = ("plain", "canvas"),
) -> Pictures:
    """``pictures`` through a store in ``folder``, which holds at most ``max_bytes``; or as they
    are.
    """
    if not pictures.cacheable or not len(pictures):
        return pictures
    sides = {
        view: transform.size if view == "plain" else pictures.side(transform) for view in views
    }
    per_picture = sum(3 * side * side for side in sides.values()) + 4 * (len(sides) + 3)
    limit = max_bytes()
    known = f"{VERSION} {pictures.fingerprint()} {transform} {sides}"
    key = hashlib.blake2b(known.encode(), digest_size=12).hexdigest()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "lock"):
            place = folder / key
            if not place.exists():
                free = shutil.disk_usage(folder).free - GIB  # leave some of the disk free
                count = min(len(pictures), min(limit, free) // per_picture)
                if count <= 0:
                    return pictures
                evict(folder, limit - count * per_picture)
                create(place, sides, count)
            os.utime(place)
            count = (place / "shapes").stat().st_size // 12
        return CachedPictures(pictures, Store(sides, count, place), transform)
    except OSError as error:
        warnings.warn(
            f"Pictures are read without a cache: {folder}: {error.strerror or error}.", stacklevel=2
        )
        return pictures


def cache_folder(home: Path | None, cache: bool | str | Path = True) -> Path | None:
    """Where the cache lies: at ``cache``, at ``SAFECL_CACHE`` (a folder, or ``off``), beside the
    data, or at home.
    """
    said = str(cache)
    if said.lower() in ("on", "true", "yes"):
        said = os.environ.get("SAFECL_CACHE", "")
    if said.lower() in ("off", "false", "no", "0"):
        return None
    if said:
        return Path(said).expanduser()
    if home is not None and os.access(home, os.W_OK):
        return home / FOLDER
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "safecl" / "pictures"


def max_bytes() -> int:
    said = os.environ.get("SAFECL_CACHE_GB", "32")
    try:
        return int(float(said) * GIB)
    except ValueError:
        raise SafeclError("pictures.cache.size", said=said) from None


def create(place: Path, sides: dict[str, int], count: int) -> None:
    """An empty store; the files are sparse and take room as they fill. Appears by rename."""
    fresh = Path(tempfile.mkdtemp(prefix="new-", dir=place.parent))
    for view, side in sides.items():
        with open(fresh / view, "wb") as file:
            file.truncate(count * 3 * side * side)
    # These two are written through the map, so their room is taken now.
    (fresh / "marks").write_bytes(bytes(4 * count * len(sides)))
    (fresh / "shapes").write_bytes(bytes(12 * count))
    os.replace(fresh, place)


def evict(folder: Path, room: int) -> None:
    """Remove the stores used longest ago until the rest fit into ``room`` bytes."""
    stores = sorted(
        (p for p in folder.iterdir() if p.is_dir()), key=lambda p: p.stat().st_mtime, reverse=True
    )
    for store in stores:
        # Bytes on disk, fewer than the size of a file that is not full yet.
        found = [file.stat() for file in store.iterdir()]
        room -= sum(getattr(file, "st_blocks", file.st_size // 512) * 512 for file in found)
        if room < 0:
            shutil.rmtree(store, ignore_errors=True)  # a process that has it open keeps reading it


def checksum(view: np.ndarray, shape: np.ndarray) -> int:
    """Never 0, which marks a missing view."""
    return (
        zlib.crc32(np.ascontiguousarray(shape).data, zlib.crc32(np.ascontiguousarray(view).data))
        or 1
    )


def write_at(file: Path, data: np.ndarray, offset: int) -> None:
    """Not through the map: a full disk is then an error and not a crash."""
    with open(file, "r+b") as out:
        out.seek(offset)
        out.write(data.data)
