"""``safecl correct``, ``split`` and ``join``: what a model was taught wrongly is put right."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from safecl.classifier.history import as_label, find
from safecl.classifier.store import ModelFile
from safecl.cli.models import ModelArgument, change
from safecl.errors import SafeclError

if TYPE_CHECKING:
    from safecl.streams.pictures.find import File

Files = Annotated[list[Path], typer.Argument(metavar="PICTURE…", help="Pictures, or folders of them.")]


def correct(
    model: ModelArgument,
    pictures: Files,
    label: Annotated[str | None, typer.Option(help="Their class; a new one or one that is there.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="As if they had never been learned.")] = False,
) -> None:
    """Give pictures the right label, or remove learned ones. Nothing is trained. Those never learned are added.

    Example:  safecl correct pets.safecl photos/monday/dog/017.jpg --label cat
    """
    if (label is None) is not remove:
        raise SafeclError("Give --label NAME, or --remove: one of the two.")
    header = ModelFile(model).header  # what is no model is answered before torch is imported
    word, files = None if label is None else as_label(header, label), _files(pictures)
    change(model, lambda classifier: classifier.correct(files, word, remove=remove))


def split(
    model: ModelArgument,
    old: Annotated[str, typer.Argument(metavar="CLASS", help="The class.")],
    pictures: Files,
    into: Annotated[str, typer.Option(help="The name of the new class.")],
) -> None:
    """Make a new class of some pictures of a class. Nothing is trained.

    Example:  safecl split pets.safecl cat photos/tabbies --into tabby
    """
    word = as_label(ModelFile(model).header, into)
    files = _files(pictures)
    change(model, lambda classifier: classifier.split(old, files, word))


def join(
    model: ModelArgument,
    one: Annotated[str, typer.Argument(metavar="A", help="A class.")],
    other: Annotated[str, typer.Argument(metavar="B", help="Another one, which becomes a part of it.")],
) -> None:
    """Make one class of two. No picture is needed, and nothing is trained.

    Example:  safecl join pets.safecl cat kitten
    """
    change(model, lambda classifier: classifier.join(one, other), lambda header: find(header, other))


def _files(paths: list[Path]) -> list["File"]:
    from safecl.streams.pictures.find import picture_files

    return [file for path in paths for file in picture_files(path)]
