"""Where a model is written: what may be replaced there, and one rename for each change."""

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

from safecl.atomic import replacing
from safecl.classifier.modelfile.store import SUFFIX, Members, ModelFile, write_zip
from safecl.errors import SafeclError
from safecl.outputs import not_replaced, real

if TYPE_CHECKING:
    from safecl.classifier.modelfile.schema import Header


class Replaced(SafeclError):
    """The file has changed since it was opened; the new model is kept beside it."""


def check_path(path: Path) -> None:
    """Refuse a place where no model can be written, and names that another kind of file has."""
    file = real(path)
    if file.is_dir():
        raise SafeclError("model.path.folder", path=path)
    if file.suffix.lower() != SUFFIX:
        raise SafeclError("model.path.suffix", suffix=SUFFIX, stem=file.stem or "pets")


def replaceable(path: Path, force: bool) -> str | None:
    """Refuse to write over a model that can learn, or no model at all, unless ``force``; gives its
    ``digest_of``.
    """
    check_path(path)
    file = real(path)
    if file.exists() and not file.is_file():
        raise SafeclError("model.path.no-file", path=path)
    if file.exists() and not force:
        try:
            frozen = ModelFile(file).header["frozen"]
        except SafeclError:
            raise not_replaced(path, "is no model") from None
        if not frozen:
            raise not_replaced(path, "is there already and can learn")
    return digest_of(file)


def digest_of(file: Path) -> str | None:
    """What tells a model from another in its place; empty where that is no model, None where
    nothing is.
    """
    try:
        return ModelFile(file).digest
    except SafeclError:
        return "" if file.exists() else None


def write_model(file: Path, header: "Header", members: Members, before: str | None) -> None:
    """Put a model at ``file``, which is locked and was ``before`` by its digest, in one step.

    If it is another one now, or was deleted, it is left as it is: the model goes into a file beside
    it.
    """
    names = (
        file.with_name(f"{file.stem}.new{n}{file.suffix}")
        for n in itertools.chain([""], itertools.count(2))
    )
    went = [file]

    def onto() -> Path:
        if digest_of(file) != before:
            went[0] = next(name for name in names if not name.exists())
        return went[0]

    with replacing(file, onto) as opened:
        write_zip(opened, header, members)
    if went[0] != file:
        done = "was replaced" if file.exists() else "was deleted"
        raise Replaced("model.replaced", file=file, done=done, kept=went[0])
