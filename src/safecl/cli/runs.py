"""``safecl runs``, ``show`` and ``compare``: what lies in run folders, as tables on the terminal."""

from collections.abc import Sequence
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table as Drawn
from rich.text import Text

from safecl.cli.keys import typed
from safecl.cli.terminal import Column, print_sentence, print_table, text_for
from safecl.errors import SafeclError
from safecl.report import run_tables, tables, words
from safecl.report.runs import Run, read_run
from safecl.report.series import all_series, run_names
from safecl.settings import flatten


def list_runs(root: Path, console: Console) -> None:
    """One line for each run below ``root``, the newest last."""
    if not root.is_dir():
        raise SafeclError(f"There is no folder {root}; give the folder that holds your runs.")
    found = sorted({file.parent for file in root.rglob("resolved.yaml")}, key=lambda f: f.stat().st_mtime)
    if not found:
        raise SafeclError(f"There are no runs in {root}; 'safecl run' makes them.")
    rows, said = [], []
    for folder in found:
        name = str(folder.relative_to(root)) if folder != root else folder.name
        try:
            run = read_run(folder)
            rows.append([name, *_row(run)])
            if run.state == "failed":
                said.append(f"{name} failed: {run.failed}")
        except SafeclError as error:
            started = (folder / "facts.json").exists()
            rows.append([name, *[words.NONE] * 10, "damaged" if started else "not begun"])
            if started:
                said.append(f"{name} is damaged: {error}")
    heads = (
        "run",
        "method",
        "preset",
        "stream",
        "PET",
        "seed",
        "sessions",
        "final",
        "learned",
        "average",
        "time",
        "state",
    )
    right = ("seed", "sessions", "final", "learned", "average", "time")
    columns = [Column(head, head in right, head in ("run", "stream")) for head in heads]
    domains = any(row[8] != words.NONE for row in rows)
    if not domains:  # only a domain-incremental run is tested on what it has not learned
        columns, rows = columns[:8] + columns[9:], [row[:8] + row[9:] for row in rows]
    meanings = {"final": "accuracy on all test pictures, ± its standard error", "average": "the mean over sessions"}
    if domains:
        meanings["learned"] = "on the domains learned so far"
    drop = [
        "sessions",
        "preset",
        "method",
        *(["learned"] if domains else []),
        "average",
        "stream",
        "time",
        "PET",
        "seed",
    ]
    print_table(console, f"Runs in {root}", columns, rows, drop=drop, meanings=meanings)
    for sentence in said:
        print_sentence(console, sentence)


def show_run(folder: Path, console: Console) -> None:
    """What a run is, and all its numbers."""
    run = read_run(folder)
    facts, series = run.facts, all_series([run])
    about = {
        "run": str(folder),
        "state": f"failed: {run.failed}" if run.state == "failed" else run.state,
        "method": run_names([run])[0],
        "preset": facts.preset,
        "stream": f"{facts.stream.name}, {words.protocol(facts.stream.protocol)}, {words.plural(run.total, 'session')}",
        "tested on": words.plural(run.tested, "picture") if run.last else "",
        "backbone": facts.backbone.name,
        "PET": facts.pet or "none",
        "seed": str(facts.seed),
        "learnable": f"{words.count(run.parameters.learnable)} numbers",
        "kept": f"{words.count(run.parameters.stored)} numbers",
        "device": f"{facts.device} ({facts.hardware})",
        "started": facts.started,
        "command": facts.command if isinstance(facts.command, str) else " ".join(facts.command or []),
    }
    grid = Drawn.grid(padding=(0, 2))
    for key, value in about.items():
        if value:
            grid.add_row(text_for(console, key, "bold"), text_for(console, value))
    console.print(grid)
    console.print()
    if run.metrics:
        decided = [table] if (table := run_tables.decisions(run, "What was decided")) else []
        costs = run_tables.costs(run, "Time and memory")
        for table in (tables.at_the_end(series), *tables.after_each_session(series), *decided, costs):
            _print(table, console)
        for sentence in words.caveats([run]):
            print_sentence(console, sentence)


def compare_runs(folders: Sequence[Path], console: Console) -> None:
    """The runs' numbers side by side, and the settings in which they differ: first those that all of them have."""
    runs = [read_run(folder) for folder in folders]
    series = all_series(runs)
    if any(run.metrics for run in runs):
        for table in (tables.at_the_end(series), *tables.after_each_session(series)):
            _print(table, console)
    for sentence in words.caveats(runs):
        print_sentence(console, sentence)
    names = run_names(runs)
    settings = [
        {key: typed(value) or words.NONE for key, value in flatten(yaml.safe_load(run.config) or {}).items()}
        for run in runs
    ]
    every = dict.fromkeys(key for each in settings for key in each)
    differ = [key for key in every if len({each.get(key) for each in settings}) > 1]
    if not differ:
        console.print("All settings are the same.")
        return
    differ.sort(key=lambda key: any(key not in each for each in settings))
    columns = [Column(name, folds=True) for name in ("setting", *names)]
    rows = [[key, *(each.get(key, words.NONE) for each in settings)] for key in differ]
    caption = f"{words.NONE}: this run has no such setting" if any(words.NONE in row for row in rows) else ""
    print_table(console, "Settings in which they differ", columns, rows, caption=caption)


def _row(run: Run) -> list[str]:
    facts, main = run.facts, next(one for one in all_series([run]) if one.main)
    learned = words.percent(main.final_seen) if facts.stream.protocol == "domain" else words.NONE
    about = [run_names([run])[0], facts.preset or words.NONE, facts.stream.name, facts.pet or "none", str(facts.seed)]
    about.append(f"{run.done}/{run.total}")
    final, average = words.accuracy(main.final, run.tested), words.percent(main.average)
    return [*about, final, learned, average, words.duration(run.seconds), run.state]


def _print(table: tables.Table, console: Console) -> None:
    """A table of the report, for the terminal."""
    named = [(group.name, column) for group in table.groups for column in group.columns]
    if len(table.groups) > 1:
        named = [
            (name, f"{name} {'accuracy' if column == name.partition(' (')[0] else column}") for name, column in named
        ]
    columns = [Column(table.leads[0], folds=True)]
    columns += [Column(head, right=True) for head in (*table.leads[1:], *(column for _, column in named))]
    rows = [[Text(cell.text, style="bold" if cell.best else "") for cell in row] for row in table.rows]
    print_table(console, table.title, columns, rows)
