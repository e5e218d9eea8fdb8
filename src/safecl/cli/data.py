"""``safecl data …``: list, prepare, check and show datasets."""

import contextlib
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from safecl.cli.terminal import say

NARROW = 64  # columns below which boxes and columns leave no room for words
COLUMNS = shutil.get_terminal_size().columns
HELP: Literal["rich"] | None = "rich" if COLUMNS >= NARROW else None
app = typer.Typer(
    help="Datasets: list, prepare, check, show.", no_args_is_help=True, rich_markup_mode=HELP
)

Dataset = Annotated[str, typer.Argument(help="A named dataset; safecl data list lists them.")]
Name = Annotated[str, typer.Argument(help="A named dataset, or folder:PATH, csv:FILE, hf:NAME.")]
Words = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings such as stream.step=2.")
]
Root = Annotated[
    Path | None,
    typer.Option(help="Where datasets are prepared; SAFECL_DATA, or ./data, if not given."),
]


@app.command("list")
def list_(root: Root = None) -> None:
    """Every named stream: size, sessions, and whether it is prepared.

    Example:  safecl data list
    """
    from safecl.cli.terminal import make_console
    from safecl.lines import print_sentence
    from safecl.report.table import make_table, print_table
    from safecl.streams.datasets import DATASETS
    from safecl.streams.datasets.dataset import record
    from safecl.streams.settings import FORMS, data_root

    rows = [["glyphs", "any", "drawn", "drawn", "any", "needs nothing", "–"]]
    for d in DATASETS.values():
        train, test = next(iter(d.counts.values()))
        count = len(d.domains) or 1 + math.ceil((d.classes - d.first) / d.step)
        sessions = f"{count} domains" if d.domains else f"{count} of {d.step}"
        place = data_root(root) / d.folder
        state = str(record(place).get("split", "by hand")) if place.is_dir() else "no"
        rows.append([d.name, str(d.classes), f"{train:,}", f"{test:,}", sessions, state, d.licence])
    heads = ("name", "classes", "training", "test", "sessions", "prepared", "licence")
    console = make_console()
    title = f"Streams (prepared in {data_root(root)})"
    table = make_table(title, heads, rows, words=("sessions", "prepared", "licence"))
    print_table(console, table, drop=("test", "training", "sessions", "licence"))
    print_sentence(console, f"Your own pictures: {', '.join(FORMS)}")


@app.command()
def prepare(
    name: Dataset,
    source: Annotated[Path | None, typer.Option("--from", help="An archive, or a folder.")] = None,
    root: Root = None,
    download: Annotated[
        bool, typer.Option("--download", help="Fetch what is open to software.")
    ] = False,
) -> None:
    """Lay a named dataset out below ROOT, from its official or its processed archive.

    Example:  safecl data prepare cifar100 --from cifar-100-python.tar.gz --root data
    """
    from safecl.errors import SafeclError, unknown
    from safecl.streams.datasets import DATASETS
    from safecl.streams.datasets.download import download as fetch
    from safecl.streams.datasets.prepare import prepare as lay_out
    from safecl.streams.settings import canonical, data_root

    if canonical(name) not in DATASETS:
        raise unknown("dataset", name, DATASETS)
    dataset = DATASETS[canonical(name)]
    place = data_root(root)
    if source is not None and download:
        raise SafeclError("command.data.from-and-download")
    if source is None and not download:
        raise SafeclError("command.data.no-source", title=dataset.title, fetch=dataset.fetch)
    if source is None:
        with downloading() as shown:
            source = fetch(dataset, place / "downloads" / dataset.name, say, shown)
    lay_out(dataset, source, place, say)


@app.command()
def check(name: Name, words: Words = None, root: Root = None) -> None:
    """Counts, unreadable pictures, pictures in training and test. Exit code 1 if there is a
    problem.

    It reads what a run with the same settings would read. Example:  safecl data check folder:photos
    or   safecl data check folder:photos stream.unreadable=skip
    """
    # before anything heavy is imported: a wrong word is answered at once
    settings = _settings(name, words, root)
    from safecl.streams.catalog import check_stream

    report = check_stream(settings)
    for sign, lines in (
        ("", report.facts),
        ("warning: ", report.warnings),
        ("problem: ", report.problems),
    ):
        for line in lines:
            say(sign + line)
    raise typer.Exit(1 if report.problems else 0)


@app.command()
def show(
    name: Annotated[
        str, typer.Argument(help="glyphs, a named dataset, or folder:PATH, csv:FILE, hf:NAME.")
    ],
    words: Words = None,
    out: Annotated[Path, typer.Option(help="A folder for the sheets.")] = Path("sheets"),
    root: Root = None,
    per_class: Annotated[int, typer.Option(min=1, help="Pictures of each class.")] = 8,
) -> None:
    """Draw a sheet of each session's training pictures, a row for every class.

    Example:  safecl data show glyphs   or   safecl data show folder:photos stream.step=10 --out
    sheets
    """
    settings = _settings(name, words, root)
    from safecl.streams.catalog import open_stream
    from safecl.streams.sheets import write_sheets

    if "cache" in type(settings).model_fields:
        settings = settings.model_copy(update={"cache": False})  # they are looked at once
    for path in write_sheets(open_stream(settings), out, per_class=per_class):
        say(str(path))


@contextlib.contextmanager
def downloading() -> Iterator[Callable[[str, int, int | None], None]]:
    """Shows how far each file is, where there is a terminal."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from safecl.cli.terminal import make_console

    console = make_console()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    tasks: dict[str, Any] = {}
    with Progress(
        *columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal
    ) as drawn:

        def shown(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = drawn.add_task(name, total=total)
            drawn.update(tasks[name], completed=done)

        yield shown


def _settings(name: str, words: list[str] | None, root: Path | None) -> Any:
    from safecl.configure.words import parse_words
    from safecl.errors import SafeclError
    from safecl.streams.settings import parse_stream, short_form

    values = short_form(name)
    if root is not None:
        if values["kind"] != "dataset":
            raise SafeclError("command.data.root-idle", root=root, name=name)
        values["root"] = str(root)
    for word in words or []:
        if not word.startswith("stream."):
            raise SafeclError("command.data.no-stream-setting", word=word)
    return parse_stream({**values, **parse_words(words or []).get("stream", {})})
