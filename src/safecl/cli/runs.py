"""``safecl runs``, ``show`` and ``compare``: what lies in run folders, as tables on the
terminal.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from safecl.cli.terminal import make_console, print_facts
from safecl.errors import SafeclError
from safecl.lines import print_sentence

if TYPE_CHECKING:
    from safecl.report.runs import Run


def runs(
    root: Annotated[Path, typer.Argument(metavar="DIR", help="Where the runs are.")] = Path("runs"),
) -> None:
    """List the runs in a folder, the newest last: what they are, how far they are, how well they
    did.

    Example:  safecl runs   or   safecl runs experiments
    """
    from safecl.report import words
    from safecl.report.runs import read_run
    from safecl.report.table import make_table, print_table

    if not root.is_dir():
        raise SafeclError("command.runs.no-folder", root=root)
    found = sorted(
        {file.parent for file in root.rglob("resolved.yaml")}, key=lambda f: f.stat().st_mtime
    )
    if not found:
        raise SafeclError("command.runs.none", root=root)
    rows = []
    said = []
    console = make_console()
    for folder in found:
        name = str(folder.relative_to(root)) if folder != root else folder.name
        try:
            run = read_run(folder)
            rows.append([name, *_row(run)])
            if run.state == "failed":
                said.append(f"{name} failed: {run.failed}")
        except SafeclError as error:
            started = (folder / "facts.json").exists()
            rows.append([name, *[words.NONE] * 9, "damaged" if started else "not begun"])
            if started:
                said.append(f"{name} is damaged: {error}")
    texts = ("method", "preset", "stream", "PET")
    heads = ["run", *texts, "seed", "sessions", "final", "average", "time", "state"]
    drop = ["sessions", "preset", "method", "average", "stream", "time", "PET", "seed"]
    table = make_table(f"Runs in {root}", heads, rows, words=(*texts, "state")).filled()
    caption = (
        "final: accuracy on all test pictures, ± its standard error; average: the mean over"
        " sessions"
    )
    print_table(console, table, drop=drop, caption=caption)
    for sentence in said:
        print_sentence(console, sentence)


def show(folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]) -> None:
    """Show one run: what it is, and its numbers session by session.

    Example:  safecl show runs/demo/safe
    """
    from safecl.report import tables, words
    from safecl.report.runs import read_run
    from safecl.report.series import all_series, run_names
    from safecl.report.table import print_table

    run = read_run(folder)
    console = make_console()
    facts = run.facts
    series = all_series([run])
    about = {
        "run": str(folder),
        "state": f"failed: {run.failed}" if run.state == "failed" else run.state,
        "method": run_names([run])[0],
        "preset": facts.preset,
        "stream": (
            f"{facts.stream.name}, {words.protocol(facts.stream.protocol)},"
            f" {words.plural(run.total, 'session')}"
        ),
        "tested on": words.plural(run.tested, "picture") if run.last else "",
        "backbone": facts.backbone,
        "PET": facts.pet or "none",
        "seed": str(facts.seed),
        "learnable": f"{words.count(run.parameters.learnable)} numbers",
        "kept": f"{words.count(run.parameters.stored)} numbers",
        "device": f"{facts.device} ({facts.hardware})",
        "started": facts.started,
        "command": run.facts.command,
    }
    print_facts(console, [(key, value) for key, value in about.items() if value])
    console.print()
    if run.metrics:
        decided = tables.decisions(run, "What was decided")
        costs = tables.costs(run, "Time and memory")
        for table in filter(None, (*tables.accuracy_tables(series), decided, costs)):
            print_table(console, table)


def compare(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Run folders, or a folder of runs.")
    ],
) -> None:
    """Put runs side by side: their numbers, and the settings in which they differ. safecl report
    draws them.

    Example:  safecl compare runs/demo/safe runs/demo/ranpac
    """
    import yaml

    from safecl.configure.words import typed
    from safecl.report import tables, words
    from safecl.report.runs import find_runs, read_run
    from safecl.report.series import all_series, run_names
    from safecl.report.table import make_table, print_table
    from safecl.settings import flatten

    runs = [read_run(folder) for folder in find_runs(folders)]
    console = make_console()
    for table in tables.accuracy_tables(all_series(runs)):
        print_table(console, table)
    names = run_names(runs)
    configs = [flatten(yaml.safe_load(run.config) or {}) for run in runs]
    settings = [
        {key: typed(value) or words.NONE for key, value in config.items()} for config in configs
    ]
    every = dict.fromkeys(key for each in settings for key in each)
    differ = [key for key in every if len({each.get(key) for each in settings}) > 1]
    if not differ:
        console.print("All settings are the same.")
        return
    # those that all of them have come first
    differ.sort(key=lambda key: any(key not in each for each in settings))
    rows = [[key, *(each.get(key, words.NONE) for each in settings)] for key in differ]
    caption = (
        f"{words.NONE}: this run has no such setting"
        if any(words.NONE in row for row in rows)
        else ""
    )
    table = make_table("Settings in which they differ", ("setting", *names), rows, words=names)
    print_table(console, table, caption=caption)


def _row(run: "Run") -> list[str]:
    from safecl.report import words
    from safecl.report.series import all_series, run_names

    facts = run.facts
    main = next(one for one in all_series([run]) if one.main)
    about = [
        run_names([run])[0],
        facts.preset or words.NONE,
        facts.stream.name,
        facts.pet or "none",
        str(facts.seed),
    ]
    about.append(f"{run.done}/{run.total}")
    final = words.accuracy(main.final, run.tested)
    average = words.percent(main.average)
    return [*about, final, average, words.duration(main.time), run.state]
