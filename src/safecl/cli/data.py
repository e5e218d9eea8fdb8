"""``safecl data …``: what there is, preparing it, checking it, looking at it."""

from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(help="Datasets: list, prepare, check, show.", no_args_is_help=True)

Dataset = Annotated[str, typer.Argument(help="A named dataset; safecl data list lists them.")]
Name = Annotated[str, typer.Argument(help="A named dataset, or folder:PATH, csv:PATH, parquet:PATH, hf:NAME.")]
Root = Annotated[Path | None, typer.Option(help="Where datasets are prepared [SAFECL_DATA, or ./data].")]


@app.command("list")
def list_(root: Root = None) -> None:
    """Every named stream: size, sessions, and whether it is prepared.

    Example:  safecl data list
    """
    from rich.console import Console
    from rich.table import Table

    from safecl.streams.catalog import FORMS, data_root
    from safecl.streams.datasets import DATASETS
    from safecl.streams.datasets.dataset import record

    table = Table("name", "classes", "train / test", "sessions", "prepared", "licence")
    table.add_row("glyphs", "any", "drawn", "any", "needs nothing", "—")
    for d in DATASETS.values():
        train, test = next(iter(d.counts.values()))
        sessions = "6 domains" if d.protocol == "domain" else f"{d.first} + {d.step} …"
        place = data_root(root) / d.folder
        state = str(record(place).get("split", "by hand")) if place.is_dir() else "no"
        table.add_row(d.name, str(d.classes), f"{train} / {test}", sessions, state, d.licence)
    console = Console()
    console.print(table)
    console.print(f"Your own pictures: {', '.join(FORMS)}", markup=False)


@app.command()
def prepare(
    name: Dataset,
    source: Annotated[Path | None, typer.Option("--from", help="An archive, or a folder.")] = None,
    root: Root = None,
    download: Annotated[bool, typer.Option(help="Fetch what is open to software.")] = False,
    any_md5: Annotated[bool, typer.Option("--any-md5", help="Accept an archive whose md5 is unknown.")] = False,
) -> None:
    """Lay a named dataset out below ROOT, from its official or its processed archive.

    Example:  safecl data prepare cifar100 --from cifar-100-python.tar.gz --root data
    """
    from safecl.errors import SafeclError
    from safecl.streams.catalog import data_root
    from safecl.streams.download import download as fetch
    from safecl.streams.prepare import prepare as lay_out

    dataset = _dataset(name)
    place = data_root(root)
    if source is None and not download:
        raise SafeclError(f"{dataset.title} has to come from somewhere: {dataset.fetch}")
    if source is None:
        source = fetch(dataset, place / "downloads" / dataset.name, typer.echo)
    lay_out(dataset, source, place, any_md5=any_md5, say=typer.echo)


@app.command()
def check(
    name: Name,
    root: Root = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Pictures read at the same time [the cores].")] = None,
) -> None:
    """Counts, unreadable pictures, pictures in training and test. Exit code 1 if there is a problem.

    Example:  safecl data check folder:photos
    """
    from safecl.streams.catalog import canonical, check_by_name

    report = check_by_name(canonical(name), root, workers)
    for sign, lines in (("", report.facts), ("warning: ", report.warnings), ("problem: ", report.problems)):
        for line in lines:
            typer.echo(sign + line)
    raise typer.Exit(1 if report.problems else 0)


@app.command()
def show(
    name: Name,
    out: Annotated[Path, typer.Option(help="Folder for the sheets.")] = Path("sheets"),
    root: Root = None,
    first: Annotated[int | None, typer.Option(min=1, help="Classes in the first session.")] = None,
    step: Annotated[int | None, typer.Option(min=1, help="Classes in every later session.")] = None,
    per_class: Annotated[int, typer.Option(min=1, help="Pictures of each class.")] = 8,
) -> None:
    """A contact sheet of each session as PNG.

    Example:  safecl data show glyphs --out sheets
    """
    from safecl.streams.catalog import open_stream
    from safecl.streams.show import show as draw

    options: dict[str, Any] = {"cache": False} if name != "glyphs" else {}
    stream = open_stream(name, root=root, first=first, step=step, **options)
    for path in draw(stream, out, per_class=per_class):
        typer.echo(str(path))


def _dataset(name: str) -> Any:
    from safecl.errors import unknown
    from safecl.streams.catalog import canonical
    from safecl.streams.datasets import DATASETS

    if canonical(name) not in DATASETS:
        raise unknown("dataset", name, DATASETS)
    return DATASETS[canonical(name)]
