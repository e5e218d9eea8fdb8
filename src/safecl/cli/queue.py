"""``safecl queue`` and ``sort``: which pictures to label next, and pictures in folders by answer."""

from pathlib import Path
from typing import Annotated

import typer

from safecl.classifier.store import ModelFile
from safecl.cli.models import Device, ModelArgument, Unknown
from safecl.cli.terminal import make_console, say
from safecl.errors import SafeclError
from safecl.lines import counted

Pictures = Annotated[str, typer.Argument(metavar="FOLDER", help="The folder of pictures.")]


def sort(
    model: ModelArgument,
    folder: Pictures,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder that gets a folder for each answer.")],
    link: Annotated[bool, typer.Option("--link", help="Symbolic links in place of copies.")] = False,
    move: Annotated[bool, typer.Option("--move", help="Move the pictures: they leave FOLDER.")] = False,
    unknown: Unknown = 0.05,
    device: Device = "auto",
) -> int:
    """Put the pictures of a folder into folders by answer, unknown ones into unknown/. No file is overwritten.

    Pictures that are in DIR already, in whichever folder, are left alone, so the same command goes on after a stop.
    Example:  safecl sort pets.safecl new/ --out sorted
    """
    if link and move:
        raise SafeclError("A picture is linked or moved, not both; give --link or --move.")
    file = ModelFile(model)
    from safecl.classifier.classifier import ContinualClassifier
    from safecl.classifier.sort import Sorting, files_outside
    from safecl.cli.answer_words import answered, tell_bad
    from safecl.report.table import make_table, print_table
    from safecl.streams.pictures.find import picture_files, printable

    files = files_outside(picture_files(folder), Path(folder), out)
    classifier = ContinualClassifier.load(model, device=device)
    sorting = Sorting(out, file.header["classes"], "link" if link else "move" if move else "copy")
    bad = []
    for picture, answer in answered(classifier, sorting.new(files), unknown, False):
        if isinstance(answer, str):
            bad.append(f"{printable(picture.path)} ({answer})")
        else:
            sorting.take(picture, answer)
    rows = [[name, f"{count:,}"] for name, count in sorted(sorting.put.items())]
    if rows:
        print_table(make_console(), make_table(f"Put into {out}", ("folder", "pictures"), rows))
    if sorting.there:
        say(f"{counted(sorting.there, 'picture was', 'pictures were')} there already.")
    return tell_bad(bad)


def add_commands(app: typer.Typer) -> None:
    """The commands of this file."""
    app.command()(sort)
