"""Run what targets need and make their tables and figures; what is done already is only read."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from math import prod
from pathlib import Path
from typing import Unpack

from pydantic import TypeAdapter

from safecl.atomic import write_json
from safecl.backbone import hub
from safecl.backbone.settings import EMBEDDED, BackboneSettings
from safecl.engine.identity import Identity
from safecl.errors import SafeclError
from safecl.experiments.config import RunSettings
from safecl.experiments.identity import Identities, find_done
from safecl.experiments.launch import launch
from safecl.experiments.reproduce.draw import Drawing, draw
from safecl.experiments.reproduce.plan import Job, all_cells
from safecl.experiments.reproduce.probe import Probe
from safecl.experiments.reproduce.results import Line, cells_csv, fill, judge, target_table
from safecl.experiments.reproduce.targets import Preset, Scale, names
from safecl.experiments.sweep.plan import Cell, Plan, named
from safecl.experiments.sweep.sweep import How, run_cells
from safecl.experiments.sweep.worker import attempt
from safecl.lines import counted
from safecl.report import words
from safecl.report.gallery import data_address
from safecl.report.page import save
from safecl.report.runs import Run, read_run
from safecl.report.table import Table, as_latex, as_markdown
from safecl.report.templates import make_folder, render, write
from safecl.streams.catalog import open_stream
from safecl.streams.datasets import DATASETS
from safecl.streams.settings import DatasetSettings, FolderSettings, StreamSettings, TableSettings, data_root
from safecl.streams.stream import Stream

TABLES = ("table", "heatmap", "parameters")  # kinds with rows of numbers
SEVERAL = ("sessions", "weights", "tsne")  # kinds that show more than one session
RECORDS = "records"  # folder of what the page knows of each target
TRIAL = 4, 2  # classes of its session, and pictures per class: one batch


@dataclass(frozen=True)
class Made:
    """What became of a target. ``claims``: each in words, and whether it holds. ``files``: names in its folder."""

    name: str
    title: str
    source: str
    caption: str
    streams: list[str]
    table: Table
    claims: list[tuple[str, bool | None]]
    sentences: list[str]
    alt: str  # empty where there is no figure
    left_out: list[str]
    files: list[str]
    lines: list[Line]  # the numbers of the table


@dataclass
class Reproduction:
    """Targets at a scale, in one folder; ``jobs``: of this scale and preset, with these words and seeds."""

    jobs: Sequence[Job]
    scale: Scale
    preset: Preset
    folder: Path
    words: Sequence[str] = ()
    repeat: int | None = None
    trial: bool = False  # one step of one session of every run, to see that all of them start
    failed: dict[str, str] = field(default_factory=dict)  # by the names of cells

    def __post_init__(self) -> None:
        self.cells, self.identities = all_cells(self.jobs), Identities()
        self.known: dict[str, Identity] = {}
        top = self.folder / ("trial" if self.trial else "")
        self.place, self.runs_folder = top / f"{self.scale.name}-{self.preset}", top / "runs"

    def missing(self) -> dict[str, set[str]]:
        """Missing data and weights, with the cells that need them; a run that is done needs none."""
        return missing([*self.waiting(), *(cell for job in self.jobs for cell in job.shown.values())])

    def done(self) -> set[str]:
        """The names of the finished runs; one of other pictures or weights than today's is refused."""
        return find_done(self.cells, self.runs_folder, self._identify)

    def _identify(self, cell: Cell) -> Identity:
        if cell.name not in self.known:
            self.known[cell.name] = self.identities.of(*(shortened(cell) if self.trial else (cell.settings,)))
        return self.known[cell.name]

    def waiting(self) -> list[Cell]:
        done = self.done()
        return [cell for cell in self.cells if cell.name not in done]

    def run(self, without: set[str], **how: Unpack[How]) -> None:
        """Run what is not done, except the cells ``without`` data or weights."""
        cells = [cell for cell in self.cells if cell.name not in without]
        make_folder(self.runs_folder)
        done = self.done()
        self.identities = Identities()  # the pictures and weights that it has read need not stay in memory
        if self.trial:
            tried = {cell.name: attempt(self._try, cell) for cell in cells if cell.name not in done}
            self.failed = {name: sentence for name, sentence in tried.items() if sentence}
        elif cells:
            self.failed = run_cells(Plan(f"reproduce {self.scale.name}", cells), self.runs_folder, done, **how)

    def _try(self, cell: Cell) -> None:
        settings, stream = shortened(cell)
        launch(settings, self.runs_folder / cell.name, given=cell.given, stream=stream)

    def make(self, without: Mapping[str, set[str]], say: Callable[[str], None]) -> list[Made]:
        """Tables and figures of all targets from the finished runs, and the page."""
        make_folder(self.place)
        self.lacking = {name: sentence for sentence, names in [*without.items()][::-1] for name in names}
        probe = Probe(self.runs_folder, self.runs_folder.parent / "probes", TRIAL if self.trial else None)
        made = []
        for job in self.jobs:
            say(f"{job.target.name}: table and figure")
            made.append(self._make(job, probe))
        title = f"The paper's tables and figures: {self.scale.title}"
        seeds = counted(self.repeat or self.scale.repeat, "seed")
        trial = "; only one step of one session was run, so the numbers mean nothing" if self.trial else ""
        about = f"Scale {self.scale.name}, preset {self.preset}, {seeds}{trial}. Accuracies in percent; ± is the "
        write_index(self.place, title, about + "standard deviation over seeds; diff. is ours minus the paper's.")
        return made

    def _finished(self, cells: Sequence[Cell]) -> list[tuple[Cell, Run]]:
        done = self.done()
        return [(cell, read_run(self.runs_folder / cell.name)) for cell in cells if cell.name in done]

    def _make(self, job: Job, probe: Probe) -> Made:
        target, stem, files = job.target, self.place / job.target.name, []
        runs = {cell.name: run for cell, run in self._finished(job.cells)}
        lines: list[Line] = []
        if target.kind in TABLES:
            lines = fill(job, runs, probe)
        columns = [column.label for column in job.columns]
        table, claims = target_table(columns, lines), [] if self.trial else judge(target, lines)
        drawing, reason = self._draw(job, lines, runs)
        sentences, alt = (drawing.sentences, drawing.alt) if drawing else ((), "")
        left_out = [*job.left_out, *self._not_run(job, runs), *([f"the figure: {reason}"] if reason else [])]
        if lines:
            caption = f"{target.title} ({target.source}); scale {self.scale.name}, preset {self.preset}"
            texts = {"csv": cells_csv(columns, lines), "tex": as_latex(table, caption), "md": as_markdown(table)}
            files = [write(stem.with_suffix(f".{kind}"), text, kind) for kind, text in texts.items()]
        files += save(drawing.figure, stem) if drawing else []
        made = Made(
            **target.model_dump(include={"name", "title", "source", "caption"}),
            streams=list(dict.fromkeys(stream.title for stream in job.streams.values())),
            table=table,
            lines=lines,
            claims=[(words.upper_first(str(one)), one.holds) for one in claims],
            sentences=[*map(words.upper_first, sentences)],
            alt=alt,
            left_out=left_out,
            files=[file.name for file in files],
        )
        write_json(make_folder(self.place / RECORDS) / f"{made.name}.json", asdict(made))
        return made

    def _draw(self, job: Job, lines: list[Line], runs: dict[str, Run]) -> tuple[Drawing | None, str]:
        """The figure of a target that is one; without it, the reason."""
        if job.target.kind == "table":
            return None, ""
        if self.trial and job.target.kind in SEVERAL:
            return None, "a trial has one session only"
        streams = {label: cell for label, cell in job.shown.items() if cell.name not in self.lacking}
        try:
            drawing = draw(job, lines, runs, streams)
        except SafeclError as error:
            return None, str(error)
        return drawing, "" if drawing else "none of its runs is done, or none of its pictures is there"

    def _not_run(self, job: Job, runs: dict[str, Run]) -> list[str]:
        reasons: dict[str, list[str]] = {}
        for cell in (*job.cells, *job.shown.values()):
            failed = f"it failed: {self.failed[cell.name]}" if cell.name in self.failed else "it is not done"
            if cell.name not in runs and (cell in job.cells or cell.name in self.lacking):
                reasons.setdefault(self.lacking.get(cell.name, failed), []).append(cell.title)
        return [f"{named(titles)}: {reason}" for reason, titles in reasons.items()]


def write_index(folder: Path, title: str, about: str) -> Path:
    """The page with every target that is kept in ``folder``."""
    files = [file for name in names() if (file := folder / RECORDS / f"{name}.json").is_file()]
    targets = [TypeAdapter(Made).validate_json(file.read_bytes()) for file in files]
    svgs = {one.name: folder / f"{one.name}.svg" for one in targets if one.alt}
    figures = {name: data_address("image/svg+xml", file.read_bytes()) for name, file in svgs.items()}
    page = render("reproduction.html", title=title, about=about, targets=targets, figures=figures)
    return write(folder / "index.html", page)


def shortened(cell: Cell) -> tuple[RunSettings, Stream]:
    """Settings with one epoch of a batch that holds all pictures, and the part of the stream that a trial has."""
    settings = cell.settings
    batch = max(settings.train.batch_size, prod(TRIAL))
    change = {"epochs": 1, "later_epochs": None, "later_horizon": None, "milestones": (), "batch_size": batch}
    short = settings.model_copy(update={"train": settings.train.model_copy(update=change)})
    return short, open_stream(settings.stream, seed=settings.seed).excerpt(*TRIAL)


def missing(cells: Iterable[Cell]) -> dict[str, set[str]]:
    """A sentence on each missing thing, with the names of the cells that need it."""
    data, network = cache(missing_data), cache(missing_weights)
    found: dict[str, set[str]] = {}
    for cell in cells:
        for sentence in (data(cell.settings.stream), network(cell.settings.backbone)):
            if sentence is not None:
                found.setdefault(sentence, set()).add(cell.name)
    return found


def missing_data(stream: StreamSettings) -> str | None:
    """What is missing of a stream's pictures; None where they are there."""
    if isinstance(stream, DatasetSettings):
        try:
            DATASETS[stream.name].at(data_root(stream.root))
        except SafeclError as error:
            return str(error)
    if isinstance(stream, FolderSettings | TableSettings) and not Path(stream.path).expanduser().exists():
        return f"The pictures {stream.path} do not exist."
    return None


def missing_weights(backbone: BackboneSettings) -> str | None:
    """What is missing of a backbone's weights; None where they are there or can be fetched."""
    if backbone.weights not in (None, "random") and not Path(backbone.weights).expanduser().is_file():
        return f"The weight file {backbone.weights} does not exist."
    try:
        if backbone.weights is None and backbone.name != EMBEDDED:
            hub.check_hub(backbone.name)
    except ConnectionError as error:
        known = f"The weights of {backbone.name} are not cached, and the Hugging Face hub cannot be reached ({error})"
        return f"{known}; go online once, or copy them into its cache."
    return None
