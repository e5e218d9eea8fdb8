"""``safecl sweep``: the runs of a sweep, its progress, and its table."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from safecl.cli.terminal import make_console
from safecl.engine.progress import Show
from safecl.errors import SafeclError, unknown
from safecl.experiments.sweep.plan import Plan, check_objective, make_plan
from safecl.report.table import Table, make_table, print_table

PLACES = ("local", "ray")


def sweep_command(
    source: str,
    words: Sequence[str],
    folder: Path | None = None,
    on: str = "local",
    jobs: int | None = None,
    gpus: float = 1.0,
    objective: str | None = None,
    dry: bool = False,
    show: Show = "auto",
) -> int:
    """Run a sweep and print its table; the exit code is 1 where a run has failed."""
    check_place(on, jobs, gpus)
    if objective is not None:
        check_objective(objective)
    plan = make_plan(source, words, objective)  # before anything heavy is imported: a wrong word is answered at once
    place, console = folder or Path("runs") / plan.name, make_console()
    if dry:
        list_cells(plan, place, console)
        return 0
    from safecl.experiments.sweep.sweep import On, run_sweep

    options = [] if folder is None else ["--folder", str(folder)]
    command = shlex.join(["safecl", "sweep", source, *words, *options])
    where: On = "ray" if on == "ray" else "local"
    result = run_sweep(plan, place, on=where, jobs=jobs, gpus=gpus, objective=objective, show=show, command=command)
    print_results(result.table, len(result.results.labels), objective, console)
    for title, sentence in result.failed.items():
        console.print(Text(f"{title} failed: {sentence}"))
    for file in result.files:
        console.print(Text(str(file), overflow="fold"))
    return 1 if result.failed else 0


def check_place(on: str, jobs: int | None, gpus: float) -> None:
    """Refuse what cannot be meant by --on, --jobs and --gpus."""
    if on not in PLACES:
        raise unknown("place for --on", on, PLACES)
    if jobs is not None and jobs < 1:
        raise SafeclError(f"--jobs {jobs} is wrong: at least one run must run at a time.")
    if not 0 < gpus <= 1:
        raise SafeclError(f"--gpus {gpus:g} is wrong: a run takes a GPU or a part of one, like 0.5.")


def list_cells(plan: Plan, folder: Path, console: Console) -> None:
    """What would run, and what of it is there already; nothing is started."""
    rows = []
    for cell in plan.cells:
        place = folder / cell.name
        begun, ended = (place / "resolved.yaml").exists(), (place / "summary.json").exists()
        rows.append([cell.title, "done" if ended else "begun" if begun else "to do", cell.name])
    title, heads = f"{plan.name}: {len(plan.cells)} runs in {folder}", ("run", "state", "folder")
    print_table(console, make_table(title, heads, rows, words=heads), drop=["folder"])


def print_results(table: Table, labels: int, objective: str | None, console: Console) -> None:
    """The table, as wide as the terminal at most; the best of each stream is bold and has a star."""
    starred = [[replace(c, text=f"{c.text}*") if c.best else c for c in row] for row in table.rows]
    best = f"*: the best by {objective or 'final accuracy'}; " if starred != table.rows else ""
    caption = f"{best}Stored: what is kept between sessions; Time: of a run, beside the others"
    drop = ["Runs", "Time", "Stored", "Learnable"]
    print_table(console, replace(table, rows=starred), leads=labels, drop=drop, caption=caption)
