"""``safecl runs``, ``show`` and ``compare``: what lies in run folders, as tables on the terminal."""

from collections.abc import Sequence
from pathlib import Path

import yaml
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Drawn
from rich.text import Text

from safecl.errors import SafeclError
from safecl.report import tables, words
from safecl.report.runs import Run, read_run
from safecl.report.series import all_series, display, run_names
from safecl.settings import flatten


def make_console() -> Console:
    """The terminal; where there is none, lines are as long as they need to be."""
    console = Console()
    return console if console.is_terminal else Console(width=200)


def list_runs(root: Path, console: Console) -> None:
    """One line for each run below ``root``, the newest last."""
    if not root.is_dir():
        raise SafeclError(f"There is no folder {root}; give the folder that holds your runs.")
    found = sorted({file.parent for file in root.rglob("resolved.yaml")}, key=lambda f: f.stat().st_mtime)
    if not found:
        raise SafeclError(f"There are no runs in {root}; 'safecl run' makes them.")
    right = ("seed", "sessions", "final", "average", "time")
    drawn = _table(f"Runs in {root}", ["run", "method", "stream", "PET", *right, "state"], right)
    for folder in found:
        name = str(folder.relative_to(root)) if folder != root else folder.name
        try:
            drawn.add_row(name, *_row(read_run(folder)))
        except SafeclError as error:
            started = (folder / "facts.json").exists()
            state = f"damaged: {error}" if started else "not begun"
            drawn.add_row(name, *[words.NONE] * 8, state)
    console.print(drawn)


def show_run(folder: Path, console: Console) -> None:
    """What a run is, and all its numbers."""
    run = read_run(folder)
    facts, series = run.facts, all_series([run])
    about = {
        "run": str(folder),
        "state": _state(run),
        "method": display(facts.method),
        "stream": f"{facts.stream.name}, {facts.stream.protocol}-incremental, {words.plural(run.total, 'session')}",
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
        grid.add_row(Text(key, style="bold"), Text(value))
    console.print(grid)
    if run.metrics:
        costs = tables.costs(run, "Time and memory")
        for table in (tables.at_the_end(series), *tables.after_each_session(series), costs):
            console.print(_draw(table))


def compare_runs(folders: Sequence[Path], console: Console) -> None:
    """The runs' numbers side by side, and the settings that all of them have and in which they differ."""
    runs = [read_run(folder) for folder in folders]
    series = all_series(runs)
    if any(run.metrics for run in runs):
        for table in (tables.at_the_end(series), *tables.after_each_session(series)):
            console.print(_draw(table))
    names = run_names(runs)
    settings = [{key: str(value) for key, value in flatten(yaml.safe_load(run.config) or {}).items()} for run in runs]
    shared = [key for key in settings[0] if all(key in each for each in settings)]
    differ = [key for key in shared if len({each[key] for each in settings}) > 1]
    drawn = _table("Settings in which they differ", ["setting", *names], ())
    for key in differ:
        drawn.add_row(key, *(Text(each[key]) for each in settings))
    console.print(drawn if differ else "All settings are the same.")


def _row(run: Run) -> list[str]:
    facts, main = run.facts, next(one for one in all_series([run]) if one.main)
    numbers = [words.percent(main.final), words.percent(main.average), words.duration(run.seconds)]
    about = [display(facts.method), facts.stream.name, facts.pet or "none", str(facts.seed)]
    return [*about, f"{run.done}/{run.total}", *numbers, _state(run)]


def _state(run: Run) -> str:
    return "finished" if run.summary is not None and run.done == run.total else "unfinished"


def _draw(table: tables.Table) -> Drawn:
    """A table of the report, for the terminal."""
    named = [(group.name, column) for group in table.groups for column in group.columns]
    if len(table.groups) > 1:
        named = [(name, f"{name} {'accuracy' if column == name else column}") for name, column in named]
    columns = [column for _, column in named]
    drawn = _table(table.title, [*table.leads, *columns], [*table.leads[1:], *columns])
    for row in table.rows:
        drawn.add_row(*(Text(cell.text, style="bold" if cell.best else "") for cell in row))
    return drawn


def _table(title: str, columns: Sequence[str], right: Sequence[str]) -> Drawn:
    drawn = Drawn(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for column in columns:
        drawn.add_column(column, justify="right" if column in right else "left")
    return drawn
