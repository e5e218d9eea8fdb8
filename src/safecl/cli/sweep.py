"""``safecl sweep``: the runs of a sweep, its progress, and its table."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from safecl.cli.terminal import Quiet, make_console
from safecl.lines import text_for

if TYPE_CHECKING:
    from safecl.engine.progress import Show
    from safecl.report.table import Table

Folder = Annotated[Path | None, typer.Option(help="Where it is kept; below runs/ if not given.")]
On = Annotated[
    Literal["local", "ray"],
    typer.Option(help="local: processes of this machine; ray: a Ray cluster."),
]
Jobs = Annotated[int | None, typer.Option(min=1, help="Runs at once; as many as fit if not given.")]
Gpus = Annotated[
    float, typer.Option(min=0.01, max=1, help="What a run gets of a GPU; 0.5: two runs share one.")
]


def sweep(
    config: Annotated[
        str, typer.Argument(metavar="SWEEP", help="A YAML file with a grid, or a preset (compare).")
    ],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE", help="Settings of all runs, or values of the grid: seed=[0,1]."
        ),
    ] = None,
    on: On = "local",
    jobs: Jobs = None,
    gpus: Gpus = 1.0,
    folder: Folder = None,
    objective: Annotated[
        Literal["validation.final", "validation.average"] | None,
        typer.Option(help="Mark the best by this accuracy on held-out training pictures."),
    ] = None,
    quiet: Quiet = False,
) -> int:
    """Run a grid of methods, streams, seeds or any keys, and put mean ± std into a table. The same
    command resumes.

    Example:  safecl sweep compare   or   safecl sweep mine.yaml seed=[0,1] --jobs 4
    """
    from safecl.experiments.sweep.plan import make_plan

    # before torch is imported: a wrong word is answered at once
    plan = make_plan(config, words or [], objective)
    place = folder or Path("runs") / plan.name
    console = make_console()
    from safecl.experiments.sweep.sweep import run_sweep

    command = shlex.join(
        ["safecl", "sweep", config, *(words or []), *(["--folder", str(folder)] if folder else [])]
    )
    show: Show = "quiet" if quiet else "auto"
    result = run_sweep(
        plan, place, on=on, jobs=jobs, gpus=gpus, objective=objective, show=show, command=command
    )
    print_results(result.table, objective, console)
    for title, sentence in result.failed.items():
        console.print(text_for(console, f"{title} failed: {sentence}"))
    for file in result.files:
        console.print(text_for(console, str(file)))
    return 1 if result.failed else 0


def print_results(table: "Table", objective: str | None, console: Console) -> None:
    """The table, as wide as the terminal at most; the best of each stream is bold and has a
    star.
    """
    from safecl.report.table import print_table

    starred = [[replace(c, text=f"{c.text}*") if c.best else c for c in row] for row in table.rows]
    best = f"*: the best by {objective or 'final accuracy'}; " if starred != table.rows else ""
    caption = f"{best}Stored: what is kept between sessions; Time: of a run, beside the others"
    drop = ["Runs", "Time", "Stored", "Learnable"]
    leads = sum(column.words for column in table.columns)
    print_table(console, replace(table, rows=starred), leads=leads, drop=drop, caption=caption)
