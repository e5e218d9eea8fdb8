"""A sweep over many runs: what is done is skipped, what was killed goes on, and a table stands at the end."""

import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from safecl.engine.fingerprint import FREE
from safecl.engine.folder import read_json
from safecl.engine.progress import Show, clock
from safecl.engine.stop import stoppable
from safecl.errors import SafeclError, Stopped
from safecl.experiments.sweep.cluster import OnRay
from safecl.experiments.sweep.local import Local
from safecl.experiments.sweep.plan import Cell, Plan
from safecl.experiments.sweep.progress import Board, Standing, make_board, read_place
from safecl.experiments.sweep.table import Results, as_csv, as_latex, as_table, collect, runs_csv, write_text
from safecl.experiments.sweep.worker import LOG, Job, Outcome
from safecl.lines import counted
from safecl.report.page import write_page
from safecl.report.runs import read_run
from safecl.report.tables import Table
from safecl.settings import flatten

On: TypeAlias = Literal["local", "ray"]
RETRIES = 3  # of a run whose process dies
POLL = 0.2  # seconds between two looks at the workers
SIZE = "backbone.image_size"
BUSY = 2.0  # seconds until a run that another sweep works on is looked at again


class Executor(Protocol):
    """Where runs are computed."""

    jobs: int
    threads: int

    def room(self, cell: Cell) -> bool: ...

    def start(self, cell: Cell, folder: Path, job: Job) -> None: ...

    def finished(self) -> list[tuple[Cell, Outcome]]: ...

    def stop(self, at_once: bool = False) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class SweepResult:
    """A sweep that has ended: its numbers, its failed runs with their sentences, and the files it wrote."""

    results: Results
    table: Table
    failed: dict[str, str]
    files: list[Path]


def run_sweep(
    plan: Plan,
    folder: Path,
    *,
    on: On = "local",
    jobs: int | None = None,
    gpus: float = 1.0,
    objective: str | None = None,
    show: Show = "auto",
    command: str = "",
) -> SweepResult:
    """Run what is not done of ``plan`` below ``folder``, and write table, CSV, LaTeX and page there.

    ``on``: processes of this machine, or a Ray cluster. ``jobs``: runs at once at most. ``gpus``: what a run gets of a
    GPU. ``objective``: the validation metric by which the best configuration is marked. ``command``: noted in each run.
    """
    failed = run_cells(plan, folder, on=on, jobs=jobs, gpus=gpus, show=show, command=command)
    return finish(plan, folder, failed, objective)


def run_cells(
    plan: Plan,
    folder: Path,
    *,
    on: On = "local",
    jobs: int | None = None,
    gpus: float = 1.0,
    show: Show = "auto",
    command: str = "",
) -> dict[str, str]:
    """Run what is not done of ``plan`` below ``folder``; gives the names of the failed runs, each with its sentence."""
    folder = make_folder(folder)
    waiting = [cell for cell in plan.cells if not is_done(folder / cell.name, cell)]
    if not waiting:
        return {}
    executor: Executor = (OnRay if on == "ray" else Local)(waiting, jobs, gpus)
    with make_board(show) as board:
        done = len(plan.cells) - len(waiting)
        already = f", {done} of them done already" if done else ""
        at_once = f"{executor.jobs} at once, {counted(executor.threads, 'thread')} each"
        board.say(f"{plan.name}: {counted(len(plan.cells), 'run')}{already}; {at_once}; in {folder}")
        try:
            return _Loop(waiting, folder, executor, board, len(plan.cells), command).run()
        finally:
            executor.close()


def finish(plan: Plan, folder: Path, failed: dict[str, str], objective: str | None = None) -> SweepResult:
    """The table of a sweep, from its run folders, and its files."""
    cells = plan.cells
    runs = {cell.name: read_run(folder / cell.name) for cell in cells if is_done(folder / cell.name, cell)}
    results = collect(cells, runs, objective)
    table = as_table(results, f"{plan.name}: mean ± standard deviation over seeds, accuracies in percent")
    states = {cell.name: "done" if cell.name in runs else failed.get(cell.name, "not done") for cell in cells}
    files = [
        write_text(folder / f"{plan.name}.csv", as_csv(results)),
        write_text(folder / f"{plan.name}-runs.csv", runs_csv(cells, states, runs, objective)),
        write_text(folder / f"{plan.name}.tex", as_latex(results)),
    ]
    if runs:
        drawn = [runs[cell.name].folder for cell in cells if cell.name in runs]
        files.append(write_page(drawn, folder / f"{plan.name}.html", f"Sweep {plan.name}", [table]))
    titles = {cell.name: cell.title for cell in cells}
    return SweepResult(results, table, {titles[name]: sentence for name, sentence in failed.items()}, files)


def is_done(folder: Path, cell: Cell) -> bool:
    """Whether a folder holds the finished run of just these settings."""
    found = (read_json(folder / "fingerprint.json") or {}).get("settings")
    if found is None or read_json(folder / "summary.json") is None:
        return False
    wanted = flatten(cell.settings.model_dump(mode="json"))
    free = {*FREE, *((SIZE,) if wanted[SIZE] is None else ())}  # the pictures choose the size, then the run notes it
    plain = ({key: value for key, value in each.items() if key not in free} for each in (found, wanted))
    return bool(next(plain) == next(plain))


def make_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SafeclError(f"The folder {folder} cannot be made ({error.strerror}); choose another one.") from error
    return folder


class _Loop:
    """Keeps the executor busy until every run is done or has failed."""

    def __init__(
        self, cells: Sequence[Cell], folder: Path, executor: Executor, board: Board, total: int, command: str
    ) -> None:
        self.folder, self.executor, self.board, self.total, self.command = folder, executor, board, total, command
        self.queue, self.done = deque(cells), total - len(cells)
        self.running: dict[str, tuple[Cell, float]] = {}
        self.elsewhere: list[tuple[float, Cell]] = []  # runs of another sweep, and when to look again
        self.failed: dict[str, str] = {}
        self.deaths: Counter[str] = Counter()
        self.took: list[float] = []

    def run(self) -> dict[str, str]:
        """The failed runs by their names, each with its sentence."""
        with stoppable() as stop:
            while self.queue or self.running or self.elsewhere:
                if stop():
                    self._stop()
                self._start()
                for cell, outcome in self.executor.finished():
                    self._ended(cell, outcome)
                self.board.show(self._standing())
                time.sleep(POLL)
        return self.failed

    def _start(self) -> None:
        now = time.monotonic()
        for when, cell in [each for each in self.elsewhere if each[0] <= now]:
            self.elsewhere.remove((when, cell))
            if is_done(self.folder / cell.name, cell):
                self.done += 1
            else:
                self.queue.append(cell)
        while self.queue and self.executor.room(self.queue[0]):
            cell = self.queue.popleft()
            settings = cell.settings.model_dump(mode="json")
            given = f"# {self.command}\n{cell.given}" if self.command else cell.given
            job = Job(settings, given, self.command, self.executor.threads)
            self.executor.start(cell, self.folder / cell.name, job)
            self.running[cell.name] = cell, time.monotonic()

    def _ended(self, cell: Cell, outcome: Outcome) -> None:
        _, began = self.running.pop(cell.name)
        log = self.folder / cell.name / LOG
        if outcome.state == "done":
            self.done += 1
            self.took.append(time.monotonic() - began)
            self.board.say(f"{cell.title}: done in {clock(self.took[-1])}")
        elif outcome.state == "busy":
            self.elsewhere.append((time.monotonic() + BUSY, cell))
        elif outcome.state in ("died", "stopped") and self.deaths[cell.name] < RETRIES:
            self.deaths[cell.name] += 1
            self.queue.appendleft(cell)
            self.board.say(f"{cell.title}: {outcome.sentence or 'It was stopped'}; it goes on where it was.")
        else:
            times = f" {self.deaths[cell.name] + 1} times; its log is {log}." if outcome.state != "failed" else ""
            self.failed[cell.name] = f"{outcome.sentence or 'It was stopped'}{times}"
            self.board.say(f"{cell.title} failed: {self.failed[cell.name]}")

    def _stop(self) -> None:
        """Have every run save and stop, and say how to go on."""
        self.board.say(f"Stopping: {len(self.running)} runs save where they are; once more ends them at once.")
        self.executor.stop()
        try:
            while self.running:
                for cell, _ in self.executor.finished():
                    self.running.pop(cell.name)
                time.sleep(POLL)
        except KeyboardInterrupt:
            self.executor.stop(at_once=True)
        raise Stopped

    def _standing(self) -> Standing:
        now = time.monotonic()
        running = {
            cell.title: (read_place(self.folder / name), now - began) for name, (cell, began) in self.running.items()
        }
        waiting = len(self.queue) + len(self.elsewhere)
        return Standing(self.total, self.done, len(self.failed), running, waiting, self.took, self.executor.jobs)
