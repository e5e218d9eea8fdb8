"""Which pictures a model has learned, without torch: what brings nothing is said at once."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.numpy

from safecl.classifier.history import check_not_frozen
from safecl.classifier.schema import KEPT
from safecl.classifier.store import ModelFile, fitting
from safecl.errors import NothingNew, SafeclError
from safecl.lines import counted
from safecl.streams.labels import Label
from safecl.streams.pictures.find import class_folders, mark_of, printable


def check_folder(path: Path, file: ModelFile | None, again: bool = False) -> None:
    """Refuse a folder without class folders, and one of which the model in ``file`` has learned every picture."""
    if file is not None:
        check_not_frozen(file.header)
    if not path.is_dir():
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is omitted is said when the folder is read
        found = class_folders(path)
    if file is None or again:
        return
    known = learned_by(file)
    for one in found.train:
        try:
            if one.folders[found.depth] not in known.get(mark_of(one.file.digest()), ()):
                return
        except SafeclError:  # it cannot be read; what is omitted is said when the folder is read
            return
    raise nothing_new(printable(path.resolve().name), len(found.train))


def nothing_new(name: str, count: int) -> NothingNew:
    these = counted(count, "picture was", "pictures were")
    return NothingNew(f"There is nothing new in {name}: {these} learned before.")


def learned_as(seen: Mapping[str, Any], labels: Sequence[Label], prefix: str = "") -> dict[int, set[Label]]:
    """By hash, the classes that pictures were learned as, from the tensors that a model has of them."""
    names, found = dict(enumerate(labels)), dict[int, set[Label]]()
    marks, classes = (seen[prefix + key].tolist() for key in ("hashes", "classes"))
    for mark, c in zip(marks, classes, strict=True):
        found.setdefault(mark, set()).add(names[c])
    return found


def learned_by(file: ModelFile) -> dict[int, set[Label]]:
    """By hash, the classes that the pictures of a model were learned as; a frozen one does not say it."""
    with fitting(file):
        return learned_as(safetensors.numpy.load(file.raw(KEPT)), file.header["classes"], "seen/")
