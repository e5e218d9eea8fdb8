"""``safecl runs``, ``show`` and ``compare``: what lies in run folders, as tables on the terminal."""

from collections.abc import Sequence
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table as Drawn
from rich.text import Text

from safecl.cli.terminal import Column, print_table
from safecl.errors import SafeclError
from safecl.report import tables, words
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
            rows.append([name, *[words.NONE] * 9, "damaged" if started else "not begun"])
            if started:
                said.append(f"{name} is damaged: {error}")
    heads = ("run", "method", "stream", "PET", "seed", "sessions", "final", "learned", "average", "time", "state")
    right = ("seed", "sessions", "final", "learned", "average", "time")
    columns = [Column(head, head in right, head in ("run", "stream")) for head in heads]
    domains = any(row[7] != words.NONE for row in rows)
    if not domains:  # only a domain-incremental run is tested on what it has not learned
        columns, rows = columns[:7] + columns[8:], [row[:7] + row[8:] for row in rows]
    caption = "final: accuracy on all test pictures; ± is its standard error; average: the mean over sessions"
    caption += "; learned: on the domains learned so far" if domains else ""
    drop = ["sessions", "method", *(["learned"] if domains else []), "average", "stream", "time", "PET", "seed"]
    print_table(console, f"Runs in {root}", columns, rows, drop=drop, caption=caption)
    for sentence in said:
        console.print(Text(words.plain(sentence)))


def show_run(folder: Path, console: Console) -> None:
    """What a run is, and all its numbers."""
    run = read_run(folder)
    facts, series = run.facts, all_series([run])
    about = {
        "run": str(folder),
        "state": f"failed: {run.failed}" if run.state == "failed" else run.state,
        "method": run_names([run])[0],
        "stream": f"{facts.stream.name}, {facts.stream.protocol}-incremental, {words.plural(run.total, 'session')}",
        "tested on": words.plural(run.tested, "picture") if run.last else "",
        "backbone": facts.backbone.name,
        "PET": facts.pet or "none",
        "seed": str(facts.seed),
        "learnable": f"{words.count(facts.parameters.learnable)} numbers",
        "kept": f"{words.count(facts.parameters.stored)} numbers",
        "device": f"{facts.device} ({facts.hardware})",
        "started": facts.started,
        "command": facts.command if isinstance(facts.command, str) else " ".join(facts.command or []),
    }
    grid = Drawn.grid(padding=(0, 2))
    for key, value in about.items():
        if value:
            grid.add_row(Text(key, style="bold"), Text(words.plain(value), overflow="fold"))
    console.print(grid)
    console.print()
    if run.metrics:
        decided = [table] if (table := tables.decisions(run, "What was decided")) else []
        costs = tables.costs(run, "Time and memory")
        for table in (tables.at_the_end(series), *tables.after_each_session(series), *decided, costs):
            _print(table, console)
        for sentence in words.caveats([run]):
            console.print(Text(words.plain(sentence)))


def compare_runs(folders: Sequence[Path], console: Console) -> None:
    """The runs' numbers side by side, and the settings that all of them have and in which they differ."""
    runs = [read_run(folder) for folder in folders]
    series = all_series(runs)
    if any(run.metrics for run in runs):
        for table in (tables.at_the_end(series), *tables.after_each_session(series)):
            _print(table, console)
    for sentence in words.caveats(runs):
        console.print(Text(words.plain(sentence)))
    names = run_names(runs)
    settings = [{key: str(value) for key, value in flatten(yaml.safe_load(run.config) or {}).items()} for run in runs]
    shared = [key for key in settings[0] if all(key in each for each in settings)]
    differ = [key for key in shared if len({each[key] for each in settings}) > 1]
    if not differ:
        console.print("All settings are the same.")
        return
    columns = [Column(name, folds=True) for name in ("setting", *names)]
    rows = [[key, *(each[key] for each in settings)] for key in differ]
    print_table(console, "Settings in which they differ", columns, rows)


def _row(run: Run) -> list[str]:
    facts, main = run.facts, next(one for one in all_series([run]) if one.main)
    learned = words.percent(main.final_seen) if facts.stream.protocol == "domain" else words.NONE
    about = [run_names([run])[0], facts.stream.name, facts.pet or "none", str(facts.seed), f"{run.done}/{run.total}"]
    final, average = words.accuracy(main.final, run.tested), words.percent(main.average)
    return [words.plain(text) for text in (*about, final, learned, average, words.duration(run.seconds), run.state)]


def _print(table: tables.Table, console: Console) -> None:
    """A table of the report, for the terminal."""
    named = [(group.name, column) for group in table.groups for column in group.columns]
    if len(table.groups) > 1:
        named = [(name, f"{name} {'accuracy' if column == name else column}") for name, column in named]
    columns = [Column(table.leads[0], folds=True)]
    columns += [Column(head, right=True) for head in (*table.leads[1:], *(column for _, column in named))]
    rows = [[Text(words.plain(cell.text), style="bold" if cell.best else "") for cell in row] for row in table.rows]
    print_table(console, table.title, columns, rows)
