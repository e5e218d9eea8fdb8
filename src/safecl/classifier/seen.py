"""Which pictures a model has learned, without torch: what brings nothing is said at once."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.numpy

from safecl.atomic import read_json
from safecl.classifier.modelfile.history import as_labels, check_not_frozen
from safecl.classifier.modelfile.schema import KEPT
from safecl.classifier.modelfile.store import ModelFile, fitting
from safecl.errors import SafeclError
from safecl.lines import counted
from safecl.streams.labels import Label
from safecl.streams.pictures.find import class_folders, mark_of, printable

JOB = "job.json"  # in the folder of a lesson: what it is
ANSWERED = "answered"  # there: the step that answers while it is tuned


def check_folder(path: Path, file: ModelFile | None, again: bool = False) -> str | None:
    """Refuse a folder without class folders; a sentence if the model in ``file`` has learned every
    picture of it, and no lesson was stopped.
    """
    if file is not None:
        check_not_frozen(file.header)
    if not path.is_dir():
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is omitted is said when the folder is read
        found = class_folders(path, only="train")
    if file is None or again or work_folder(file.path.resolve()).is_dir():
        return None
    known = learned_by(file)
    folders = [one.folders[found.depth] for one in found.train]
    for one, label in zip(found.train, as_labels(file.header, folders), strict=True):
        try:
            if label not in known.get(mark_of(one.file.digest()), ()):
                return None
        except SafeclError:  # it cannot be read; what is omitted is said when the folder is read
            return None
    return nothing_new(printable(path.resolve().name), len(found.train))


def work_folder(file: Path) -> Path:
    """Where a lesson of the model in ``file`` keeps what it needs to go on after a stop."""
    return file.with_name(f".{file.name}.work")


def job_in(folder: Path | None) -> dict[str, Any]:
    """What the lesson in ``folder`` is; nothing where there is none of ours."""
    return (read_json(folder / JOB) if folder is not None else None) or {}


def answered(folder: Path) -> str | None:
    """The step of the model that answers while what is in ``folder`` tunes it."""
    found = job_in(folder).get(ANSWERED)
    return None if found is None else str(found)


def is_being_made(file: ModelFile) -> bool:
    """Whether a model answers, and the tuning of its first session was stopped: the command that
    makes it goes on.
    """
    past = file.header["history"]
    step = answered(work_folder(file.path.resolve()))
    return len(past) == 1 and past[0]["id"] == step


def nothing_new(name: str, count: int) -> str:
    these = counted(count, "picture was", "pictures were")
    return f"There is nothing new in {name}: {these} learned before."


def learned_as(
    seen: Mapping[str, Any], labels: Sequence[Label], prefix: str = ""
) -> dict[int, set[Label]]:
    """By hash, the classes that pictures were learned as, from the tensors that a model has of
    them.
    """
    names = dict(enumerate(labels))
    found = dict[int, set[Label]]()
    marks, classes = (seen[prefix + key].tolist() for key in ("hashes", "classes"))
    for mark, c in zip(marks, classes, strict=True):
        found.setdefault(mark, set()).add(names[c])
    return found


def learned_by(file: ModelFile) -> dict[int, set[Label]]:
    """By hash, the classes that the pictures of a model were learned as; a frozen one does not say
    it.
    """
    with fitting(file):
        return learned_as(safetensors.numpy.load(file.raw(KEPT)), file.header["classes"], "seen/")
