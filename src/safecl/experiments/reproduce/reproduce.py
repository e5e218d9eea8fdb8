"""Run what targets need and make their tables and figures; what is done already is only read."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from safecl.configure.words import parse_words
from safecl.engine.progress import Show
from safecl.errors import SafeclError
from safecl.experiments.reproduce import figures, tables
from safecl.experiments.reproduce.draw import Drawing, draw
from safecl.experiments.reproduce.estimate import Estimate, at_once, estimate
from safecl.experiments.reproduce.needs import missing
from safecl.experiments.reproduce.page import record, write_index
from safecl.experiments.reproduce.plan import Job, all_cells, make_cell
from safecl.experiments.reproduce.probe import Probe
from safecl.experiments.reproduce.results import Line, Outcome, fill, judge
from safecl.experiments.reproduce.scales import Scale
from safecl.experiments.reproduce.targets import Preset, Row
from safecl.experiments.reproduce.trial import cut, try_cell
from safecl.experiments.sweep.plan import Cell, Plan, flat
from safecl.experiments.sweep.sweep import On, is_done, make_folder, run_cells
from safecl.experiments.sweep.table import write_text
from safecl.lines import counted
from safecl.report import words
from safecl.report.runs import Run, read_run

TABLES = ("table", "heatmap", "parameters")  # kinds with rows of numbers
SEVERAL = ("sessions", "weights", "tsne")  # kinds that show more than one session
STREAM = Row(label="stream", run="simplecil")  # a run that is never made: its settings open the stream


@dataclass(frozen=True)
class Made:
    """What became of a target."""

    job: Job
    columns: list[str]
    lines: list[Line]
    claims: list[Outcome]
    sentences: tuple[str, ...]
    left_out: list[str]
    files: list[Path]


@dataclass
class Reproduction:
    """Targets at a scale, in one folder: ``runs`` holds all runs, the rest lies below scale and preset.

    ``jobs``: of this scale and preset, with these words and seeds.
    """

    jobs: Sequence[Job]
    scale: Scale
    preset: Preset
    folder: Path
    words: Sequence[str] = ()
    repeat: int | None = None
    trial: bool = False  # one step of one session of every run, to see that all of them start
    failed: dict[str, str] = field(default_factory=dict)  # by the names of cells

    def __post_init__(self) -> None:
        self.cells = all_cells(self.jobs)
        self.place = self.folder / ("trial" if self.trial else "") / f"{self.scale.name}-{self.preset}"
        self.runs_folder = self.folder / ("trial" if self.trial else "") / "runs"

    def shown_streams(self, job: Job) -> dict[str, Cell]:
        """For a figure of datasets: a cell with the stream of each column."""
        if job.target.kind != "datasets":
            return {}
        columns = {column.label: column for column in job.target.columns}
        given = {key: value for key, value in flat(parse_words(self.words)).items() if key.startswith("stream")}
        return {
            label: make_cell(job.target, STREAM, columns[label], stream, self.scale, self.preset, given)
            for label, stream in job.streams.items()
        }

    def missing(self) -> dict[str, set[str]]:
        """Data and weights that are not there, with the cells that need them; a run that is done needs none."""
        found = missing(self.waiting())
        for job in self.jobs:
            for sentence, cells in _data(missing(self.shown_streams(job).values())).items():
                found.setdefault(sentence, set()).update(cells)
        return found

    def waiting(self) -> list[Cell]:
        """The runs that are not done."""
        return [cell for cell in self.cells if not self._done(cell)]

    def estimate(self, cells: Sequence[Cell], jobs: int | None, gpus: float) -> Estimate:
        """Of runs that are not done, with at most ``jobs`` at once, each with a part of a GPU."""
        done = {cell.name: read_run(self.runs_folder / cell.name) for cell in self.cells if self._done(cell)}
        beside = at_once(len(cells), jobs, gpus)
        return estimate(cells, done, [cell for cell in self.cells if cell.name in done], beside)

    def run(self, without: set[str], *, on: On, jobs: int | None, gpus: float, show: Show, command: str) -> None:
        """Run what is not done, but for the cells ``without`` data or weights."""
        cells = [cell for cell in self.cells if cell.name not in without]
        make_folder(self.runs_folder)
        if self.trial:
            for cell in cells:
                if not self._done(cell):
                    sentence = try_cell(cell, self.runs_folder / cell.name)
                    if sentence:
                        self.failed[cell.name] = sentence
            return
        if cells:
            plan = Plan(f"reproduce {self.scale.name}", cells)
            self.failed = run_cells(plan, self.runs_folder, on=on, jobs=jobs, gpus=gpus, show=show, command=command)

    def make(self, without: Mapping[str, set[str]], say: Callable[[str], None]) -> list[Made]:
        """Tables and figures of all targets from the finished runs, and the page."""
        make_folder(self.place)
        probe = Probe(self.runs_folder, self.runs_folder.parent / "probes", cut if self.trial else None)
        made = []
        for job in self.jobs:
            say(f"{job.target.name}: table and figure")
            made.append(self._make(job, probe, without))
        title = f"The paper's tables and figures: {self.scale.title}"
        seeds = counted(self.repeat or self.scale.repeat, "seed")
        trial = "; only one step of one session was run, so the numbers mean nothing" if self.trial else ""
        about = (
            f"Scale {self.scale.name}, preset {self.preset}, {seeds}{trial}. Accuracies in percent; ± is the standard "
        )
        write_index(self.place, title, about + "deviation over seeds; diff. is ours minus the paper's.")
        return made

    def _make(self, job: Job, probe: Probe, without: Mapping[str, set[str]]) -> Made:
        target = job.target
        runs = {cell.name: read_run(self.runs_folder / cell.name) for cell in job.cells if self._done(cell)}
        left_out = [*job.left_out, *self._not_run(job, runs, without)]
        lines = fill(job, runs, probe.accuracy) if target.kind in TABLES else []
        columns = [column.label for column in job.columns]
        claims = [] if self.trial else judge(target, lines)
        drawing, reason = self._draw(job, lines, runs, probe, without)
        left_out += [f"the figure: {reason}"] if reason else []
        files = self._files(job, columns, lines, drawing)
        heads, rows = tables.wide(columns, lines)
        record(
            target,
            self.place,
            streams=list(dict.fromkeys(stream.title for stream in job.streams.values())),
            heads=heads,
            rows=rows if lines else [],
            claims=[(words.upper_first(str(one)), one.holds) for one in claims],
            sentences=[words.upper_first(text) for text in (drawing.sentences if drawing else ())],
            figure=target.name if drawing else "",
            alt=drawing.alt if drawing else "",
            left_out=left_out,
            files=[file.name for file in files],
        )
        return Made(job, columns, lines, claims, drawing.sentences if drawing else (), left_out, files)

    def _draw(
        self, job: Job, lines: list[Line], runs: Mapping[str, Run], probe: Probe, without: Mapping[str, set[str]]
    ) -> tuple[Drawing | None, str]:
        """The figure of a target that is one; without it, the reason."""
        if job.target.kind == "table":
            return None, ""
        if self.trial and job.target.kind in SEVERAL:
            return None, "a trial has one session only"
        gone = {name for names in without.values() for name in names}
        streams = {label: cell for label, cell in self.shown_streams(job).items() if cell.name not in gone}
        try:
            drawing = draw(job, lines, runs, probe, streams)
        except SafeclError as error:
            return None, str(error)
        return drawing, "" if drawing else "none of its runs is done, or none of its pictures is there"

    def _files(self, job: Job, columns: list[str], lines: list[Line], drawing: Drawing | None) -> list[Path]:
        stem, files = self.place / job.target.name, []
        if lines:
            caption = f"{job.target.title} ({job.target.source}); scale {self.scale.name}, preset {self.preset}"
            for suffix, text in (
                (".csv", tables.as_csv(columns, lines)),
                (".tex", tables.as_latex(columns, lines, caption)),
                (".md", tables.as_markdown(columns, lines)),
            ):
                files.append(write_text(stem.with_suffix(suffix), text))
        return files + (figures.save(drawing.figure, stem) if drawing else [])

    def _not_run(self, job: Job, runs: Mapping[str, Run], without: Mapping[str, set[str]]) -> list[str]:
        """Why cells of a target have no number."""
        reasons: dict[str, list[str]] = {}
        names = {cell.name: cell for cell in [*job.cells, *self.shown_streams(job).values()]}
        for name, cell in names.items():
            if name in runs:
                continue
            lacking = next((sentence for sentence, cells in without.items() if name in cells), None)
            if lacking is not None:
                reasons.setdefault(lacking, []).append(cell.title)
            elif name in self.failed:
                reasons.setdefault(f"it failed: {self.failed[name]}", []).append(cell.title)
            elif cell in job.cells:
                reasons.setdefault("it is not done", []).append(cell.title)
        return [f"{'; '.join(titles[:3])}{_more(titles)}: {reason}" for reason, titles in reasons.items()]

    def _done(self, cell: Cell) -> bool:
        folder = self.runs_folder / cell.name
        return (folder / "summary.json").is_file() if self.trial else is_done(folder, cell)


def _more(titles: Sequence[str]) -> str:
    return f" and {len(titles) - 3} more" if len(titles) > 3 else ""


def _data(found: dict[str, set[str]]) -> dict[str, set[str]]:
    """Without sentences on weights: a figure of datasets needs none."""
    return {sentence: cells for sentence, cells in found.items() if "weight" not in sentence}


def free_disk(folder: Path) -> int:
    """Bytes that are free where ``folder`` is or will be."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free
