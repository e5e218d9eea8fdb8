"""``safecl queue``, ``audit`` and ``sort``: which pictures to label next, which learned ones do
harm, and pictures in folders by answer.
"""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from safecl.cli.models import Device, ModelArgument, Page, Unknown, opened
from safecl.cli.terminal import (
    Force,
    at_work,
    check_page,
    make_console,
    print_json,
    print_line,
    say,
)
from safecl.errors import SafeclError
from safecl.lines import counted, shown

Pictures = Annotated[str, typer.Argument(metavar="FOLDER", help="The folder of pictures.")]


def queue(
    model: ModelArgument,
    folder: Pictures,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many pictures.")] = 20,
    form: Annotated[
        Literal["table", "jsonl", "csv"], typer.Option("--format", "-f", help="Of the list.")
    ] = "table",
    links: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A new folder for numbered links to them.")
    ] = None,
    page: Page = None,
    force: Force = False,
    unknown: Unknown = 0.05,
    device: Device = "auto",
) -> int:
    """Say which pictures of a folder to label next: unsure or unknown ones, different from each
    other.

    Pictures that the model has learned are omitted. Example:  safecl queue pets.safecl new/ --page
    next.html   or   safecl queue pets.safecl new/ -n 50 --links next
    """
    from safecl.streams.pictures.find import File, picture_files, printable

    file = opened(model)
    files = list(picture_files(folder))  # before torch is imported
    check_page(page, force)
    if links is not None:
        from safecl.classifier.answers.sort import new_folder

        new_folder(links)
    from safecl.classifier.answers.queue import Looking, write_links, write_page
    from safecl.classifier.answers.snapshot import Snapshot
    from safecl.classifier.data import unlabelled
    from safecl.cli.answer_words import CHUNK, printer, tell_bad
    from safecl.runtime.answer import asked

    looking = Looking(Snapshot.open(file, device), unknown)
    bad = []

    seen: list[File] = []

    def look(files: list[File]) -> list[None]:
        looking.look(unlabelled(files))
        seen.extend(files)
        return [None] * len(files)

    for start in range(0, len(files), CHUNK):
        chunk = files[start : start + CHUNK]
        reasons = zip(chunk, asked(chunk, look), strict=True)
        bad += [
            f"{printable(file.path)} ({reason})" for file, reason in reasons if reason is not None
        ]
    first = looking.first(count)
    tell = printer(form, ["worth"])
    chosen = [seen[one.index] for one in first]
    for picture, one in zip(chosen, first, strict=True):
        tell(picture.path, one.answer, worth=round(one.worth, 3))
    if links is not None:
        write_links(chosen, links)
    if page is not None:
        write_page(first, chosen, page, model.name, force)
    if looking.learned:
        say(f"Omitted {counted(looking.learned, 'picture')} that the model has learned.", err=True)
    for written in filter(None, (links, page)):
        say(f"Wrote {written}.", err=True)
    return tell_bad(bad)


def audit(
    model: ModelArgument,
    folder: Annotated[
        str | None,
        typer.Argument(help="Where learned pictures are, so that they are told by name."),
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many pictures.")] = 20,
    json_: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    page: Page = None,
    force: Force = False,
    device: Device = "auto",
) -> None:
    """Say which learned pictures do most harm: labels that look wrong, pictures under two labels,
    classes that hide others. Each with the command that mends it.

    The model keeps no names: give the folder of the pictures. Example:  safecl audit pets.safecl
    photos
    """
    file = opened(model)
    check_page(page, force)
    with at_work(f"Auditing {model}"):
        from safecl.classifier.answers.audit import write_page
        from safecl.classifier.classifier import ContinualClassifier
        from safecl.classifier.data import unlabelled

        pictures = None if folder is None else unlabelled(folder)
        found = ContinualClassifier.load(file, device=device).audit(
            [] if pictures is None else pictures
        )
    if page is not None:
        write_page(found, pictures, file.thumbnails(), page, model.name, str(model), count, force)
    if json_:
        print_json(found.fields(str(model), count))
    else:
        for one in found.first(count):
            print_line(f"{shown(one.told)}\n    {shown(one.mends(str(model)))}")
    if page is not None:
        say(f"Wrote {page}.", err=True)


def sort(
    model: ModelArgument,
    folder: Pictures,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The folder that gets a folder for each answer.")
    ],
    link: Annotated[
        bool, typer.Option("--link", help="Symbolic links in place of copies.")
    ] = False,
    move: Annotated[
        bool, typer.Option("--move", help="Move the pictures: they leave FOLDER.")
    ] = False,
    unknown: Unknown = 0.05,
    device: Device = "auto",
) -> int:
    """Put the pictures of a folder into folders by answer, unknown ones into unknown/. No file is
    overwritten.

    Pictures that are in DIR already, in whichever folder, are left alone, so the same command goes
    on after a stop. Example:  safecl sort pets.safecl new/ --out sorted
    """
    if link and move:
        raise SafeclError("command.sort.link-and-move")
    file = opened(model)
    from safecl.classifier.answers.snapshot import Snapshot
    from safecl.classifier.answers.sort import Sorting, files_outside
    from safecl.cli.answer_words import answered, tell_bad
    from safecl.report.table import make_table, print_table
    from safecl.streams.pictures.find import picture_files, printable

    files = files_outside(picture_files(folder), Path(folder), out)
    now = Snapshot.open(file, device)
    sorting = Sorting(out, file.header["classes"], "link" if link else "move" if move else "copy")
    bad = []
    for picture, answer in answered(
        partial(now.answers, unknown=unknown, detail=False), sorting.new(files)
    ):
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
