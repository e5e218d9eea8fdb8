"""A sweep over many runs: what is done is skipped, what was killed resumes, and a table stands at
the end.

Meanwhile a person sees a line for all of it and one per run at work, or plain lines in a log.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, TypedDict, Unpack

from rich.console import Console
from rich.live import Live
from rich.text import Text

from safecl.atomic import read_json
from safecl.engine.progress import Show, clock
from safecl.engine.stop import stoppable
from safecl.errors import Stopped
from safecl.experiments.sweep.cluster import OnRay
from safecl.experiments.sweep.done import check_rows, find_done
from safecl.experiments.sweep.local import Local
from safecl.experiments.sweep.plan import Cell, Objective, Plan
from safecl.experiments.sweep.table import as_table
from safecl.experiments.sweep.worker import LOG, Job, Outcome
from safecl.lines import counted, shown, text_for
from safecl.report.page import write_page
from safecl.report.runs import read_run
from safecl.report.table import Table, as_csv, as_latex
from safecl.report.templates import make_folder, write

On: TypeAlias = Literal["local", "ray"]
Executor: TypeAlias = Local | OnRay  # where runs are computed
RETRIES = 3  # of a run whose process dies
POLL = 0.2  # seconds between two looks at the workers
BUSY_PAUSE = 30.0  # seconds before a run that another process works on is tried again


class How(TypedDict, total=False):
    on: On  # processes of this machine, or a Ray cluster
    jobs: int | None  # runs at once at most
    gpus: float  # the part of a GPU that a run gets
    show: Show
    command: str  # noted in each run


class SweepResult(NamedTuple):
    """A sweep that has ended: its table, its failed runs with their sentences, and the files it
    wrote.
    """

    table: Table
    failed: dict[str, str]
    files: list[Path]


def run_sweep(
    plan: Plan, folder: Path, objective: Objective | None = None, **how: Unpack[How]
) -> SweepResult:
    """Run what is not done of ``plan``, and write table, CSV, LaTeX and page; ``objective``: marks
    the best row.
    """
    failed = run_cells(plan, folder, **how)
    cells = plan.cells
    runs = {cell.name: read_run(folder / cell.name) for cell in cells if cell.name not in failed}
    check_rows([cell for cell in cells if cell.name in runs], folder)
    title = f"{plan.name}: mean ± standard deviation over seeds, accuracies in percent"
    table = as_table(title, cells, runs, objective)
    files = [
        write(folder / f"{plan.name}.csv", as_csv(table), "csv"),
        write(folder / f"{plan.name}.tex", as_latex(table), "tex"),
    ]
    if runs:
        drawn = [run.folder for run in runs.values()]
        files.append(write_page(drawn, folder / f"{plan.name}.html", f"Sweep {plan.name}", [table]))
    return SweepResult(
        table, {cell.title: failed[cell.name] for cell in cells if cell.name in failed}, files
    )


def run_cells(
    plan: Plan, folder: Path, done: set[str] | None = None, **how: Unpack[How]
) -> dict[str, str]:
    """Run what is not done of ``plan`` (``done``, if known); gives the names of failed runs, each
    with its sentence.
    """
    done = find_done(plan.cells, folder) if done is None else done
    waiting = [cell for cell in plan.cells if cell.name not in done]
    if not waiting:
        return {}
    make_folder(folder)
    executor = (OnRay if how.get("on") == "ray" else Local)(
        waiting, how.get("jobs"), how.get("gpus", 1.0)
    )
    board = Board(how.get("show", "auto"))
    with board.live:
        already = f", {len(plan.cells) - len(waiting)} of them done already" if done else ""
        at_once = f"{executor.jobs} at once, {counted(executor.threads, 'thread')} each"
        board.say(
            f"{plan.name}: {counted(len(plan.cells), 'run')}{already}; {at_once}; in {folder}"
        )
        try:
            return Loop(
                waiting, folder, executor, board, len(plan.cells), how.get("command", "")
            ).run()
        finally:
            executor.close()


class Loop:
    """Keeps the executor busy until every run is done or has failed."""

    def __init__(
        self,
        cells: Sequence[Cell],
        folder: Path,
        executor: Executor,
        board: "Board",
        total: int,
        command: str = "",
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder = folder
        self.executor = executor
        self.board = board
        self.total = total
        self.command = command
        self.queue = deque(cells)
        self.done = total - len(cells)
        self.now = now
        # since when another process is known to have a run
        self.busy: deque[tuple[float, Cell]] = deque()
        self.running: dict[str, tuple[Cell, float]] = {}
        self.failed: dict[str, str] = {}
        self.deaths: Counter[str] = Counter()

    def run(self, poll: float = POLL) -> dict[str, str]:
        with stoppable() as stop:
            while self.queue or self.running or self.busy:
                if stop():
                    self._stop(poll)
                self._start()
                for cell, outcome in self.executor.finished():
                    self._ended(cell, outcome)
                self.board.show(self.standing())
                time.sleep(poll)
        return self.failed

    def _start(self) -> None:
        while self.busy and self.now() - self.busy[0][0] >= BUSY_PAUSE:
            self.queue.append(self.busy.popleft()[1])
        while self.queue and self.executor.room():
            cell = self.queue.popleft()
            job = Job(cell.settings.model_dump(mode="json"), self.command, self.executor.threads)
            self.executor.start(cell, self.folder / cell.name, job)
            self.running[cell.name] = cell, self.now()

    def _ended(self, cell: Cell, outcome: Outcome) -> None:
        said = outcome.sentence or "It was stopped"
        _, began = self.running.pop(cell.name)
        if outcome.state == "done":
            self.done += 1
            self.board.say(f"{cell.title}: done in {clock(self.now() - began)}")
        elif outcome.state == "busy":  # what another sweep has finished by then is only read
            self.busy.append((self.now(), cell))
        elif outcome.state != "failed" and self.deaths[cell.name] < RETRIES:
            self.deaths[cell.name] += 1
            self.queue.appendleft(cell)
            self.board.say(f"{cell.title}: {said}; it resumes.")
        else:
            log = self.folder / cell.name / LOG
            times = (
                f" {self.deaths[cell.name] + 1} times; its log is {log}."
                if outcome.state != "failed"
                else ""
            )
            self.failed[cell.name] = f"{said}{times}"
            self.board.say(f"{cell.title} failed: {self.failed[cell.name]}")

    def _stop(self, poll: float) -> None:
        self.board.say(
            f"Stopping: {len(self.running)} runs save where they are; once more ends them at once."
        )
        self.executor.stop()
        try:
            while self.running:
                for cell, _ in self.executor.finished():
                    self.running.pop(cell.name)
                time.sleep(poll)
        except KeyboardInterrupt:
            self.executor.stop(at_once=True)
        raise Stopped

    def standing(self) -> str:
        """A line for the whole sweep, and one per run at work: its place, and its seconds so
        far.
        """
        wrong = f", {len(self.failed)} failed" if self.failed else ""
        lines = [f"{self.done} of {self.total} runs done{wrong}, {len(self.running)} at work"]
        for name, (cell, began) in self.running.items():
            lines.append(
                f"{cell.title}: {read_place(self.folder / name)}, {clock(self.now() - began)}"
            )
        lines += [f"{cell.title}: another process works on it" for _, cell in self.busy]
        return "\n".join(lines)


def read_place(folder: Path) -> str:
    """How far the run in a folder is, in words."""
    facts = read_json(folder / "facts.json")
    if facts is None:
        return "starting"
    total = len(facts["stream"]["sessions"])
    metrics = folder / "metrics.jsonl"
    done = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
    return f"session {min(done + 1, total)} of {total}"


class Board:
    """Shows a sweep inside ``with board.live``: drawn in place on a terminal, now and then in a
    log, or not at all.
    """

    def __init__(
        self, show: Show = "auto", every: float = 30.0, console: Console | None = None
    ) -> None:
        self.console = console or Console(quiet=show == "quiet")
        self.drawn = self.console.is_terminal and show != "plain"
        self.live = Live(console=self.console, auto_refresh=False, transient=True)
        self.every = every
        self.shown = time.monotonic()

    def say(self, text: str) -> None:
        self.console.print(text_for(self.console, text), highlight=False, soft_wrap=True)

    def show(self, lines: str) -> None:
        """They are cut at the width of a terminal, and those below its end are omitted."""
        if self.drawn:
            self.live.update(
                Text(shown(lines, keep="\n"), no_wrap=True, overflow="ellipsis"), refresh=True
            )
        elif time.monotonic() - self.shown >= self.every:
            self.shown = time.monotonic()
            self.say(lines)
