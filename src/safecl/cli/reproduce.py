"""``safecl reproduce``: the paper's tables and figures, ours beside the paper's numbers."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from safecl.cli.sweep import Gpus, Jobs, On
from safecl.cli.terminal import Quiet, make_console
from safecl.errors import SafeclError, unknown
from safecl.lines import counted, print_sentence

if TYPE_CHECKING:
    from safecl.engine.progress import Show
    from safecl.experiments.reproduce.reproduce import Made


def reproduce(
    target: Annotated[
        str, typer.Argument(help="Tables and figures of the paper, joined by commas; all; or list.")
    ],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DIR] [KEY=VALUE]…", help="DIR: with --scale assets. Settings of all runs."
        ),
    ] = None,
    scale: Annotated[str, typer.Option(help="small, assets (with DIR) or paper.")] = "small",
    preset: Annotated[
        Literal["safe", "paper", "published"] | None, typer.Option(help="SAFE's settings.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="How many seeds; the scale's own number if not given.")
    ] = None,
    on: On = "local",
    jobs: Jobs = None,
    gpus: Gpus = 1.0,
    folder: Annotated[Path, typer.Option(help="Where runs, tables and figures are kept.")] = Path(
        "runs/reproduce"
    ),
    skip_missing: Annotated[
        bool, typer.Option("--skip-missing", help="Run what has its data and weights.")
    ] = False,
    quiet: Quiet = False,
) -> int:
    """Make a table or figure of the paper: ours beside the paper's numbers. The same command
    resumes.

    Example:  safecl reproduce list   or   safecl reproduce all   or   safecl reproduce table-fast
    --scale assets DIR
    """
    from safecl.experiments.reproduce.plan import make_job
    from safecl.experiments.reproduce.targets import ALL, TARGETS, read_scale, read_target
    from safecl.report.table import make_table, print_table

    console = make_console()
    if target == "list":
        rows = [[target.name, target.source, target.title] for target in map(read_target, TARGETS)]
        heads = ("target", "in the paper", "what")
        print_table(console, make_table("Targets of safecl reproduce", heads, rows, words=heads))
        print_sentence(
            console,
            "safecl reproduce all makes every one of them; runs that they share are made once.",
        )
        return 0
    targets = TARGETS if target == ALL else tuple(dict.fromkeys(target.split(",")))
    for name in targets:
        if name not in TARGETS:
            raise unknown("target", name, [*TARGETS, ALL, "list"])
    folders = [word for word in words or [] if "=" not in word]
    given = [word for word in words or [] if "=" in word]
    if len(folders) > 1:
        raise SafeclError("command.reproduce.two-folders", folder=folders[1])
    size = read_scale(scale, Path(folders[0]) if folders else None)
    chosen = preset or size.preset
    found = [make_job(read_target(name), size, chosen, given, seeds) for name in targets]
    # torch, which a wrong word does without
    from safecl.experiments.reproduce.reproduce import (
        Reproduction,
    )

    work = Reproduction(found, size, chosen, folder, seeds)
    missing = work.missing()
    if missing and not skip_missing:
        lines = "\n".join(
            f"  {sentence} (for {counted(len(cells), 'run')})"
            for sentence, cells in missing.items()
        )
        start = f"{counted(len(missing), 'thing')} missing, and nothing was started:"
        raise SafeclError("reproduce.needs", start=start, lines=lines)
    without = {name for cells in missing.values() for name in cells}
    extra = [
        f"--{key}={value}"
        for key, value in (("preset", preset), ("seeds", seeds))
        if value is not None
    ]
    command = shlex.join(["safecl", "reproduce", target, *(words or []), "--scale", scale, *extra])
    show: Show = "quiet" if quiet else "auto"
    work.run(without, on=on, jobs=jobs, gpus=gpus, show=show, command=command)
    for made in work.make(missing, lambda text: None if quiet else print_sentence(console, text)):
        print_made(made, work.place, console)
    print_sentence(console, f"All tables and figures: {work.place / 'index.html'}")
    return 1 if work.failed else 0


def print_made(made: "Made", place: Path, console: Console) -> None:
    """A target's table with the paper's numbers, its claims, and what was not run."""
    from safecl.report.table import print_table

    on = f", on {', '.join(made.streams)}" if made.streams else ""
    print_sentence(console, f"\n{made.name}: {made.title}{on}", "bold")
    if made.lines:
        print_table(console, made.table)
    for sentence in (*(text for text, _ in made.claims), *made.sentences):
        print_sentence(console, sentence)
    files = [str(place / file) for file in made.files if file.endswith((".svg", ".md"))]
    for sentence in (*(f"Not run: {reason}" for reason in made.left_out), *files):
        print_sentence(console, sentence, "dim")
