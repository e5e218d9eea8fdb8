"""What of a folder a model has learned, without torch: one that brings nothing is refused at once."""

import warnings
from pathlib import Path

import safetensors.numpy

from safecl.classifier.history import check_not_frozen
from safecl.classifier.schema import KEPT
from safecl.classifier.store import ModelFile, fitting
from safecl.errors import SafeclError
from safecl.lines import counted
from safecl.streams.pictures.find import class_folders, mark_of, printable


def check_folder(path: Path, file: ModelFile | None, again: bool = False) -> None:
    """Refuse a folder without class folders, and one of which the model in ``file`` has learned every picture."""
    if file is not None:
        check_not_frozen(file.header, steps=1)
    if not path.is_dir():
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is omitted is said when the folder is read
        found = class_folders(path)
    if file is None or again:
        return
    with fitting(file):
        rows, labels = safetensors.numpy.load(file.raw(KEPT)), dict(enumerate(file.header["classes"]))
        marks, classes = (rows[name].tolist() if name in rows else [] for name in ("seen/hashes", "seen/classes"))
        if not {*classes} <= labels.keys():
            raise ValueError("classes names a class that is not there")
        pairs = {(mark, labels[c]) for mark, c in zip(marks, classes, strict=True)}
    for one in found.train:
        try:
            if (mark_of(one.file.digest()), one.folders[found.depth]) not in pairs:
                return
        except SafeclError:  # it cannot be read; what is omitted is said when the folder is read
            return
    raise SafeclError(nothing_new(printable(path.resolve().name), len(found.train)))


def nothing_new(name: str, count: int) -> str:
    return f"There is nothing new in {name}: {counted(count, 'picture was', 'pictures were')} learned before."
