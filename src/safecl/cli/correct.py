"""``safecl correct``, ``split`` and ``join``: what a model was taught wrongly is put right."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from safecl.cli.models import ModelArgument, change, opened
from safecl.errors import SafeclError
from safecl.lines import counted, naming, shown

if TYPE_CHECKING:
    from safecl.streams.pictures.find import File

Files = Annotated[
    list[Path], typer.Argument(metavar="PICTURE…", help="Pictures, or folders of them.")
]


def correct(
    model: ModelArgument,
    pictures: Files,
    label: Annotated[
        str | None, typer.Option(help="Their class; a new one or one that is there.")
    ] = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="As if they had never been learned.")
    ] = False,
) -> None:
    """Give pictures the right label, or remove learned ones. Nothing is trained. Those never
    learned are added.

    On a terminal it asks before it changes all pictures of a folder.
    Example:  safecl correct pets.safecl photos/monday/dog/017.jpg --label cat
    """
    if (label is None) is not remove:
        raise SafeclError("command.correct.one-of-two")
    opened(model)
    files = _files(pictures)
    folders = [shown(str(path)) for path in pictures if path.is_dir()]
    if folders and sys.stdin.isatty() and sys.stderr.isatty():
        what = f"{counted(len(files), 'picture')}, all of {naming(folders)}"
        typer.confirm(
            f"Remove {what}?" if label is None else f"Give {what}, the label {label}?",
            abort=True,
            err=True,
        )
    change(model, lambda classifier: classifier.correct(files, label, remove=remove))


def split(
    model: ModelArgument,
    old: Annotated[str, typer.Argument(metavar="CLASS", help="The class.")],
    pictures: Files,
    into: Annotated[str, typer.Option(help="The name of the new class.")],
) -> None:
    """Make a new class of some pictures of a class. Nothing is trained.

    Example:  safecl split pets.safecl cat photos/tabbies --into tabby
    """
    opened(model)
    files = _files(pictures)
    change(model, lambda classifier: classifier.split(old, files, into))


def join(
    model: ModelArgument,
    one: Annotated[str, typer.Argument(metavar="A", help="A class.")],
    other: Annotated[
        str, typer.Argument(metavar="B", help="Another one, which becomes a part of it.")
    ],
) -> None:
    """Make one class of two. No picture is needed, and nothing is trained.

    Example:  safecl join pets.safecl cat kitten
    """
    from safecl.classifier.modelfile.history import find

    change(
        model, lambda classifier: classifier.join(one, other), lambda header: find(header, other)
    )


def _files(paths: list[Path]) -> list["File"]:
    from safecl.streams.pictures.find import picture_files

    return [file for path in paths for file in picture_files(path)]
