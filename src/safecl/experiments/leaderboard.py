"""A leaderboard in a folder: a file for each configuration, with what every seed of it did.

A row keeps the raw lines of its runs, so that its numbers can be computed again by anybody.
"""

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from safecl.atomic import read_json, read_lines, write_json
from safecl.engine.identity import FILE, digest
from safecl.engine.metrics import Measured, mean, pooled
from safecl.engine.metrics.history import learning
from safecl.engine.metrics.transfer import forgetting
from safecl.errors import SafeclError
from safecl.lines import counted, slug
from safecl.report import words
from safecl.report.runs import Run, read_run
from safecl.report.table import Cell, Table, make_table, numbers

CLOSE = 1e-9  # between a number of a row and the same computed again
FREE = {"seed", "metrics"}  # settings that configurations do not differ in
FEWEST = 3  # seeds below which a row is said to have few


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Line(Strict):
    """After one session: test pictures and accuracies by session, seconds of learning, bytes
    kept.
    """

    tests: list[int]
    accuracy: list[float | None]
    seconds: float
    kept: int


class Numbers(Strict):
    """What papers give, and what they leave out."""

    final: float | None
    average: float | None
    forgetting: float | None
    seconds: float
    kept: int


class Seed(Strict):
    """One run. ``commit``: of the folder that it was started in, with a + where files had been
    changed. ``digest``: of the lines.
    """

    seed: int
    command: str
    commit: str | None
    version: str
    machine: str
    lines: list[Line]
    digest: str
    numbers: Numbers


class Row(Strict):
    """A configuration: its settings without the seed, its weights by their digest, its runs."""

    title: str
    method: str
    preset: str
    stream: str
    protocol: str
    sessions: int
    classes: int
    pet: str
    backbone: str
    weights: str
    settings: dict[str, Any]
    runs: list[Seed]

    @property
    def name(self) -> str:
        """The name of its file, without an ending."""
        known = {"settings": self.settings, "weights": self.weights, "stream": self.stream}
        stem = slug(f"{self.stream} {self.method} {self.pet}")
        return f"{stem}-{digest({**known, 'sessions': self.sessions})[:8]}"

    def numbers(self, kind: str) -> list[float]:
        """Of every seed that has it."""
        found = [getattr(run.numbers, kind) for run in self.runs]
        return [value for value in found if value is not None]


def add(folders: Sequence[Path], board: Path) -> list[Path]:
    """Write the rows of finished runs; a seed that a row has already is replaced. Gives the
    files.
    """
    rows: dict[str, Row] = {}
    for folder in folders:
        row = row_of(read_run(folder))
        known = rows.get(row.name) or read_row(board / f"{row.name}.json")
        before = [] if known is None else [r for r in known.runs if r.seed != row.runs[0].seed]
        runs = sorted([*before, *row.runs], key=lambda run: run.seed)
        rows[row.name] = row.model_copy(update={"runs": runs})
    board.mkdir(parents=True, exist_ok=True)
    for name, row in rows.items():
        write_json(board / f"{name}.json", row.model_dump(mode="json"))
    return [board / f"{name}.json" for name in rows]


def row_of(run: Run) -> Row:
    """Of a finished run, with itself as the only seed."""
    known = read_json(run.folder / FILE)
    if run.state != "finished" or known is None:
        raise SafeclError("leaderboard.run.unfinished", folder=run.folder, state=run.state)
    facts = run.facts
    raw = read_lines(run.folder / "metrics.jsonl", run.total)
    lines = [
        Line(
            tests=line["test_counts"],
            accuracy=line["accuracy"][facts.main],
            seconds=learning(line["seconds"]),
            kept=line["bytes_kept"],
        )
        for line in raw
    ]
    settings = {key: value for key, value in known["settings"].items() if key not in FREE}
    if settings.get("backbone.weights"):  # a file, which their digest tells wherever it lies
        settings["backbone.weights"] = Path(settings["backbone.weights"]).name
    written = read_json(run.folder / "facts.json") or {}
    seed = Seed(
        seed=facts.seed or 0,
        command=without_folder(facts.command),
        commit=written.get("git"),
        version=facts.version,
        machine=f"{facts.device}: {facts.hardware}",
        lines=lines,
        digest=digest_of(lines),
        numbers=computed(lines),
    )
    return Row(
        title=facts.title,
        method=facts.method,
        preset=facts.preset,
        stream=facts.stream.name,
        protocol=facts.stream.protocol,
        sessions=run.total,
        classes=run.classes,
        pet=facts.pet or "none",
        backbone=facts.backbone,
        weights=known["backbone"]["weights"],
        settings=settings,
        runs=[seed],
    )


def without_folder(command: str) -> str:
    """The command wherever it is given: where its run was kept matters to nobody else."""
    words = shlex.split(command)
    if "--folder" in words:
        at = words.index("--folder")
        words = words[:at] + words[at + 2 :]
    return shlex.join(words)


def digest_of(lines: Sequence[Line]) -> str:
    return digest({"lines": [line.model_dump(mode="json") for line in lines]})


def computed(lines: Sequence[Line]) -> Numbers:
    """The numbers that raw lines give."""
    rows = [line.accuracy for line in lines]
    after = [pooled(line.accuracy, line.tests) for line in lines]
    return Numbers(
        final=after[-1],
        average=mean(after),
        forgetting=forgetting(Measured(rows, lines[-1].tests, len(lines))),
        seconds=sum(line.seconds for line in lines),
        kept=lines[-1].kept,
    )


def read_row(file: Path) -> Row | None:
    """The row in a file; None where there is none."""
    if not file.exists():
        return None
    try:
        return Row.model_validate_json(file.read_bytes())
    except (ValidationError, OSError) as error:
        reason = " ".join(str(error).split())
        raise SafeclError("leaderboard.row.unreadable", file=file, reason=reason[:200]) from None


def read_board(board: Path) -> dict[Path, Row]:
    """Every row by its file."""
    if not board.is_dir():
        raise SafeclError("leaderboard.folder.missing", board=board)
    found = ((file, read_row(file)) for file in sorted(board.glob("*.json")))
    return {file: row for file, row in found if row is not None}


def check(board: Path) -> tuple[list[str], list[str]]:
    """What is wrong with the rows, and what is only worth knowing, a sentence each."""
    problems: list[str] = []
    notes: list[str] = []
    for file, row in read_board(board).items():
        problems += [f"{file.name}: {text}" for text in wrong(file, row)]
        seeds = len(row.runs)
        if seeds < FEWEST:
            notes.append(f"{file.name} has {counted(seeds, 'seed')}; {FEWEST} tell more")
        changed = [run.seed for run in row.runs if not run.commit or run.commit.endswith("+")]
        if changed:
            named = ", ".join(map(str, changed))
            notes.append(f"{file.name}: no commit has the code of seed {named} as it was run")
    return problems, notes


def wrong(file: Path, row: Row) -> Iterator[str]:
    """What does not fit in a row."""
    if file.stem != row.name:
        yield f"its settings are those of {row.name}.json"
    if not row.runs:
        yield "it has no run"
    for seed, times in Counter(run.seed for run in row.runs).items():
        if times > 1:
            yield f"seed {seed} is there {times} times"
    for run in row.runs:
        if digest_of(run.lines) != run.digest:
            yield f"the lines of seed {run.seed} are not those of its digest"
        if len(run.lines) != row.sessions:
            yield f"seed {run.seed} has {len(run.lines)} of {row.sessions} sessions"
        elif not alike(run.numbers, computed(run.lines)):
            yield f"the numbers of seed {run.seed} are not those of its lines"


def alike(given: Numbers, again: Numbers) -> bool:
    for key, value in given:
        other = getattr(again, key)
        if (value is None) != (other is None):
            return False
        if value is not None and abs(value - other) > CLOSE:
            return False
    return True


def tables(rows: Iterable[Row]) -> list[Table]:
    """A table for each stream and backbone, the best first; accuracies are means over seeds."""
    groups: dict[tuple[str, int, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.stream, row.sessions, row.backbone), []).append(row)
    found = []
    for (stream, sessions, backbone), mine in sorted(groups.items()):
        ordered = sorted(mine, key=lambda row: -fmean(row.numbers("final") or [0.0]))
        lines = [[*cells(row, best=row is ordered[0] and len(ordered) > 1)] for row in ordered]
        title = f"{stream}, {counted(sessions, 'session')}, {backbone}"
        heads = ["Method", "Preset", "PET", "Seeds", "Final", "Average", "Forgetting"]
        heads += ["Learning", "Kept", "Machine", "Commit"]
        texts = ("Preset", "PET", "Machine", "Commit")
        found.append(make_table(title, heads, lines, words=texts))
    return found


def cells(row: Row, best: bool) -> Iterator[Cell]:
    yield Cell(row.title)
    yield from (Cell(row.preset or words.NONE), Cell(row.pet))
    yield Cell(str(len(row.runs)), value=len(row.runs))
    for kind in ("final", "average", "forgetting"):
        values = row.numbers(kind)
        middle = mean(values)
        spread = stdev(values) if len(values) > 1 else None
        text = words.points(middle) if kind == "forgetting" else words.bare_percent(middle)
        more = "" if spread is None else f" ± {100 * spread:.1f}"
        yield Cell(f"{text}{more}", best and kind == "final", value=middle, spread=spread)
    yield from numbers(words.duration, mean(row.numbers("seconds")))
    yield from numbers(words.size, mean(row.numbers("kept")))
    yield Cell(", ".join(dict.fromkeys(run.machine for run in row.runs)))
    commits = dict.fromkeys((run.commit or words.NONE)[:9] for run in row.runs)
    yield Cell(", ".join(commits))


def as_text(row: Row) -> str:
    """The settings of a row, for its page."""
    return json.dumps(row.settings, indent=1, sort_keys=True)
