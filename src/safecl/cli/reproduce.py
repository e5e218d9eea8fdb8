"""``safecl reproduce``: the paper's tables and figures, ours beside the paper's numbers."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from safecl.cli.sweep import check_place, list_cells
from safecl.cli.terminal import make_console
from safecl.errors import SafeclError, unknown
from safecl.experiments.reproduce.plan import all_cells, make_jobs
from safecl.experiments.reproduce.targets import ALL, PRESETS, names, read_scale, read_target
from safecl.experiments.sweep.plan import Plan
from safecl.lines import counted, print_sentence
from safecl.report import words as said
from safecl.report.table import make_table, print_table

if TYPE_CHECKING:
    from safecl.engine.progress import Show
    from safecl.experiments.reproduce.reproduce import Made, Reproduction
    from safecl.experiments.sweep.sweep import On


@dataclass(frozen=True)
class Options:
    """The options of the command, in its order."""

    scale: str
    preset: str | None
    seeds: int | None
    on: str
    jobs: int | None
    gpus: float
    folder: Path
    skip_missing: bool
    trial: bool
    dry: bool
    quiet: bool


def list_targets(console: Console) -> None:
    """What can be made."""
    rows = [[target.name, target.source, target.title] for target in map(read_target, names())]
    heads = ("target", "in the paper", "what")
    print_table(console, make_table("Targets of safecl reproduce", heads, rows, words=heads))
    print_sentence(console, "safecl reproduce all makes every one of them; runs that they share are made once.")


def reproduce_command(target: str, words: Sequence[str], options: Options) -> int:
    """Check, estimate, run, and print the tables; the exit code is 1 where a run has failed."""
    check_place(options.on, options.jobs, options.gpus)
    targets = names() if target == ALL else list(dict.fromkeys(target.split(",")))
    for name in targets:
        if name not in names():
            raise unknown("target", name, [*names(), ALL, "list"])
    folders, given = [word for word in words if "=" not in word], [word for word in words if "=" in word]
    if len(folders) > 1:
        raise SafeclError(f"{folders[1]!r} is one folder too many; settings are written key=value.")
    scale = read_scale(options.scale, Path(folders[0]) if folders else None)
    preset = options.preset or scale.preset
    chosen = next((one for one in PRESETS if one == preset), None)
    if chosen is None:
        raise unknown("preset for --preset", preset, PRESETS)
    found = make_jobs(targets, scale, chosen, given, options.seeds)
    console = make_console()
    if options.dry:
        if cells := all_cells(found):
            list_cells(Plan(f"reproduce {target}", cells), options.folder / "runs", console)
        return 0
    from safecl.experiments.reproduce.reproduce import Reproduction  # torch, which a wrong word does without

    work = Reproduction(found, scale, chosen, options.folder, given, options.seeds, options.trial)
    missing = work.missing()
    if missing and not options.skip_missing:
        lines = [f"  {sentence} (for {counted(len(cells), 'run')})" for sentence, cells in missing.items()]
        raise SafeclError("\n".join([f"{counted(len(missing), 'thing')} missing, and nothing was started:", *lines,
                                     "  --skip-missing runs what does not need them."]))  # fmt: skip
    without = {name for cells in missing.values() for name in cells}
    if not options.quiet:
        announce(work, without, options, console)
    extra = [word for key, value in (("--preset", options.preset), ("--seeds", options.seeds)) if value is not None
             for word in (key, str(value))]  # fmt: skip
    command = shlex.join(["safecl", "reproduce", target, *words, "--scale", options.scale, *extra])
    on: On = "ray" if options.on == "ray" else "local"
    show: Show = "quiet" if options.quiet else "auto"
    work.run(without, on=on, jobs=options.jobs, gpus=options.gpus, show=show, command=command)
    for made in work.make(missing, lambda text: None if options.quiet else print_sentence(console, text)):
        print_made(made, console)
    if options.trial:
        started = f"{len(work.cells) - len(without) - len(work.failed)} of {counted(len(work.cells), 'run')}"
        print_sentence(console, f"\n{started} took one step of one session; the numbers mean nothing.")
    print_sentence(console, f"All tables and figures: {work.place / 'index.html'}")
    return 1 if work.failed else 0


def announce(work: "Reproduction", without: set[str], options: Options, console: Console) -> None:
    """How many runs, how long and how much disk, before anything starts."""
    from safecl.experiments.reproduce.reproduce import free_disk

    waiting = [cell for cell in work.waiting() if cell.name not in without]
    done = len(work.cells) - len(work.waiting())
    there = f", {done} done already" if done else ""
    left = f", {counted(len(without), 'run')} omitted" if without else ""
    start = f"{counted(len(work.jobs), 'target')}, {counted(len(work.cells), 'run')}{there}{left}"
    if not waiting or work.trial:
        print_sentence(console, f"{start}.")
        return
    found, free = work.estimate(waiting, options.jobs, options.gpus), free_disk(work.folder)
    basis = "by the runs that are done" if found.measured else "by a timed forward pass"
    enough = "" if found.bytes < free else ", which is less: free some, or choose another --folder"
    print_sentence(
        console,
        f"{start}; roughly {said.duration(found.seconds)} ({basis}) and {said.size(found.bytes)} of disk; "
        f"{said.size(free)} are free in {work.folder}{enough}.",
    )


def print_made(made: "Made", console: Console) -> None:
    """A target's table with the paper's numbers, its claims, and what was not run."""
    from safecl.experiments.reproduce.tables import target_table

    target = made.job.target
    streams = dict.fromkeys(stream.title for stream in made.job.streams.values())
    on = f", on {', '.join(streams)}" if streams else ""
    print_sentence(console, f"\n{target.name}: {target.title}{on}", "bold")
    if made.lines:
        print_table(console, target_table(made.columns, made.lines))
    for sentence in (*map(str, made.claims), *made.sentences):
        print_sentence(console, said.upper_first(sentence))
    for sentence in made.left_out:
        print_sentence(console, f"Not run: {sentence}", "dim")
    for file in made.files:
        if file.suffix in (".svg", ".md"):
            print_sentence(console, str(file), "dim")
