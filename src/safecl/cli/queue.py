"""``safecl queue`` and ``sort``: which pictures to label next, and pictures in folders by answer."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from safecl.classifier.store import ModelFile
from safecl.cli.models import Device, ModelArgument, Page, Unknown
from safecl.cli.terminal import Force, check_page, make_console, say
from safecl.errors import SafeclError
from safecl.lines import counted

Pictures = Annotated[str, typer.Argument(metavar="FOLDER", help="The folder of pictures.")]


def queue(
    model: ModelArgument,
    folder: Pictures,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many pictures.")] = 20,
    form: Annotated[Literal["table", "jsonl", "csv"], typer.Option("--format", "-f", help="Of the list.")] = "table",
    links: Annotated[Path | None, typer.Option(metavar="DIR", help="A new folder for numbered links to them.")] = None,
    page: Page = None,
    force: Force = False,
    unknown: Unknown = 0.05,
    device: Device = "auto",
) -> int:
    """Say which pictures of a folder to label next: unsure or unknown ones, different from each other.

    Pictures that the model has learned are omitted.
    Example:  safecl queue pets.safecl new/ --page next.html   or   safecl queue pets.safecl new/ -n 50 --links next
    """
    from safecl.streams.pictures.find import File, picture_files, printable

    file, files = ModelFile(model), list(picture_files(folder))  # before torch is imported
    check_page(page, force)
    if links is not None:
        from safecl.classifier.sort import new_folder

        new_folder(links)
    from safecl.classifier.answers import Snapshot
    from safecl.classifier.data import unlabelled
    from safecl.classifier.queue import Looking, write_links, write_page
    from safecl.cli.answer_words import CHUNK, asked, printer, tell_bad

    looking, bad = Looking(Snapshot.open(file, device), unknown), []

    seen: list[File] = []

    def look(files: list[File]) -> list[None]:
        looking.look(unlabelled(files))
        seen.extend(files)
        return [None] * len(files)

    for start in range(0, len(files), CHUNK):
        chunk = files[start : start + CHUNK]
        reasons = zip(chunk, asked(chunk, look), strict=True)
        bad += [f"{printable(file.path)} ({reason})" for file, reason in reasons if reason is not None]
    first = looking.first(count)
    tell, chosen = printer(form, ["worth"]), [seen[one.index] for one in first]
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
    from safecl.classifier.answers import Snapshot
    from safecl.classifier.sort import Sorting, files_outside
    from safecl.cli.answer_words import answered, tell_bad
    from safecl.report.table import make_table, print_table
    from safecl.streams.pictures.find import picture_files, printable

    files = files_outside(picture_files(folder), Path(folder), out)
    now = Snapshot.open(file, device)
    sorting = Sorting(out, file.header["classes"], "link" if link else "move" if move else "copy")
    bad = []
    for picture, answer in answered(now, sorting.new(files), unknown, False):
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
