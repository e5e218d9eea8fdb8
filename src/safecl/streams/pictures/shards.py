"""What is in a tar shard, by its headers: pictures are read in place, and nothing is unpacked.

Members: ``CLASS/PICTURE`` or, as in webdataset, ``NAME.jpg`` beside ``NAME.cls`` or ``NAME.json``
with a ``label``.
"""

import io
import json
import os
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from safecl.errors import SafeclError
from safecl.lines import shown
from safecl.streams.pictures.kinds import hidden, readable

SHARD = ".tar"
# folders of a picture, its header
Placed: TypeAlias = list[tuple[tuple[str, ...], tarfile.TarInfo]]
MAX_READ = 1 << 20  # bytes of a header or of a label, far more than a name takes


_alone = threading.Lock()  # of who moves a shared place in a file


class Shard(io.FileIO):
    """An open shard. Threads and forks may share it: pictures are read by position, and ``read`` is
    for headers.
    """

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= MAX_READ:
            # as a header claims, and before it takes memory
            raise tarfile.ReadError("a header is too long")
        return super().read(size) or b""

    def at(self, offset: int, size: int) -> bytes:
        """At most ``size`` bytes from ``offset`` on."""
        if hasattr(os, "pread"):
            return os.pread(self.fileno(), size, offset)
        with _alone:  # Windows
            self.seek(offset)
            return super().read(size) or b""


def contents(path: Path) -> tuple[Placed, list[str]]:
    """(the pictures of a shard, names of members that are neither pictures nor their labels)."""
    try:
        with Shard(path) as shard:
            members = list(_members(shard))
            found, labels = _in_folders(shard, members)
    except (
        Exception
    ) as error:  # of headers that no tar program has written, tarfile raises anything
        why = shown(getattr(error, "strerror", None) or str(error))
        raise SafeclError("pictures.shard.unreadable", path=shown(str(path)), why=why) from None
    read = {info.name for _, info in found} | labels
    return found, [info.name for info in members if info.name not in read]


def _members(shard: Shard) -> Iterator[tarfile.TarInfo]:
    """The headers of all plain files that are not hidden; names are text, and never used as
    paths.
    """
    with tarfile.open(fileobj=shard, mode="r:", encoding="utf-8", errors="surrogateescape") as tar:
        while (info := tar.next()) is not None:
            info.name = info.name.removeprefix("./")
            parts = info.name.split("/")
            plain = info.size >= 0 and (info.isdir() or (info.isreg() and not info.issparse()))
            if not plain or ".." in parts or "" in parts:
                raise tarfile.ReadError(
                    f"{info.name} is a link, a device or sparse, or leads elsewhere"
                )
            if info.isreg() and not hidden(*parts):
                yield info
        # tarfile takes anything that is no header for the end, and reads nothing behind it.
        end = shard.at(tar.offset, MAX_READ)
        if len(end) < tarfile.BLOCKSIZE or end.strip(b"\0"):
            raise tarfile.ReadError("it breaks off, or goes on behind its end")


def _in_folders(shard: Shard, members: list[tarfile.TarInfo]) -> tuple[Placed, set[str]]:
    """(the pictures by the folders in their names or, where one is beside each, labels; the
    labels).
    """
    pictures = [info for info in members if readable(_ending(info))]
    named = {info.name: info for info in members if "/" not in info.name}
    labels = dict[str, str]()
    read = set[str]()
    for info in pictures:
        sample = info.name.partition(".")[0]
        beside = (
            named.get(f"{sample}.cls", named.get(f"{sample}.json")) if info.name in named else None
        )
        if beside is not None:
            text = shard.at(beside.offset_data, min(beside.size, MAX_READ)).decode().strip()
            label = json.loads(text)["label"] if _ending(beside) == ".json" else text
            if (
                sample in labels
                or isinstance(label, bool)
                or not isinstance(label, str | int)
                or label == ""
            ):
                raise tarfile.ReadError(f"{beside.name} is not the label of one picture")
            labels[sample] = str(label)
            read.add(beside.name)
    if labels and len(labels) < len(pictures):
        raise tarfile.ReadError(
            f"{len(pictures) - len(labels)} of its pictures have no label, unlike the others"
        )
    folders = [[label] for label in labels.values()] or [
        info.name.split("/")[:-1] for info in pictures
    ]
    return list(zip(map(tuple, folders), pictures, strict=True)), read


def _ending(info: tarfile.TarInfo) -> str:
    return os.path.splitext(info.name)[1].lower()
