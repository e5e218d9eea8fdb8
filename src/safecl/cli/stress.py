"""``safecl stress``: presets put through what is harder than ten equal sessions."""

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from safecl.cli.terminal import Quiet, make_console
from safecl.errors import SafeclError
from safecl.lines import print_sentence

FOLDER = Path("runs/stress")


def stress(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="PRESET|KEY=VALUE", help="Presets, and settings of all runs."),
    ] = None,
    scale: Annotated[
        Literal["small", "full"],
        typer.Option(help="small: minutes on a CPU; full: all pictures and epochs."),
    ] = "small",
    only: Annotated[
        str | None, typer.Option(help="Some scenarios, joined by commas; all if not given.")
    ] = None,
    folder: Annotated[Path, typer.Option(help="Where runs, tables and page are kept.")] = FOLDER,
    quiet: Quiet = False,
) -> int:
    """Put methods through class orders, many sessions, Si-Blurry, one pass, wrong labels, few
    pictures, strangers. RanPAC and the untuned backbone stand beside. The same command resumes.

    Example:  safecl stress safe layup   or   safecl stress safe stream=folder:photos backbone=tiny
    --only usual,si-blurry,one-pass   or   safecl stress safe --scale full stream=cifar100
    """
    names = [word for word in words or [] if "=" not in word]
    given = [word for word in words or [] if "=" in word]
    if not names:
        raise SafeclError("command.stress.no-preset")
    from safecl.experiments.stress.stress import make_plan, run_stress

    chosen = only.split(",") if only is not None else []
    plan = make_plan(names, given, folder, scale, chosen)
    from safecl.engine.progress import make_progress
    from safecl.report.stress import by_scenario
    from safecl.report.table import print_table

    options = ["--scale", scale] if scale != "small" else []
    options += ["--only", only] if only is not None else []
    options += ["--folder", str(folder)] if folder != FOLDER else []
    command = shlex.join(["safecl", "stress", *(words or []), *options])
    console = make_console()
    made = run_stress(
        plan,
        make_progress("quiet"),
        command,
        lambda text: None if quiet else print_sentence(console, text, "dim"),
    )
    print_table(console, by_scenario(made.results))
    for text in made.left_out:
        print_sentence(console, f"Not run: {text}", "dim")
    for file in made.files:
        print_sentence(console, str(file))
    return 0
