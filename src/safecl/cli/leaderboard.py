"""``safecl leaderboard …``: finished runs as rows of a table that counts everything."""

from pathlib import Path
from typing import Annotated

import typer

from safecl.cli.data import HELP
from safecl.cli.terminal import Force, make_console, say

app = typer.Typer(
    help="A leaderboard: a file for each configuration, with its seeds, seconds and bytes.",
    no_args_is_help=True,
    rich_markup_mode=HELP,
)
Board = Annotated[Path, typer.Option("--board", help="The folder of the rows.")]
HERE = Path("benchmarks/leaderboard")


@app.command()
def add(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Finished runs, or a folder of runs.")
    ],
    board: Board = HERE,
) -> None:
    """Write runs into the leaderboard: seeds of one configuration make one row.

    Example:  safecl leaderboard add runs/seeds
    """
    from safecl.experiments.leaderboard import add as write
    from safecl.report.runs import find_runs

    for file in write(find_runs(folders), board):
        say(str(file))


@app.command()
def check(board: Board = HERE) -> None:
    """Compute every number of the rows again from their lines. Exit code 1 if one does not fit.

    Example:  safecl leaderboard check
    """
    from safecl.experiments.leaderboard import check as find
    from safecl.experiments.leaderboard import read_board
    from safecl.lines import counted

    problems, notes = find(board)
    for text in notes:
        say(f"note: {text}")
    for text in problems:
        say(f"problem: {text}")
    if not problems:
        say(f"{counted(len(read_board(board)), 'row')}, all as their lines say.")
    raise typer.Exit(1 if problems else 0)


@app.command()
def show(
    board: Board = HERE,
    page: Annotated[
        Path | None, typer.Option(help="Also write a page, with every command and setting.")
    ] = None,
    force: Force = False,
) -> None:
    """Print the leaderboard, and draw its page.

    Example:  safecl leaderboard show --page leaderboard.html
    """
    from safecl.experiments.leaderboard import as_text, read_board, tables
    from safecl.report.table import print_table
    from safecl.report.templates import render, write

    rows = list(read_board(board).values())
    found = tables(rows)
    for table in found:
        print_table(make_console(), table, drop=["Commit", "Machine", "Preset", "Average"])
    if page is not None:
        html = render(
            "leaderboard.html",
            title="Leaderboard",
            tables=found,
            rows=[(row, as_text(row)) for row in rows],
        )
        say(str(write(page, html, force=force)))
