"""Run what targets need and make their tables and figures; what is done already is only read."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Unpack

from pydantic import TypeAdapter

from safecl.atomic import write_json
from safecl.backbone import hub
from safecl.backbone.settings import EMBEDDED, BackboneSettings
from safecl.errors import SafeclError
from safecl.experiments.reproduce.draw import Drawing, draw
from safecl.experiments.reproduce.plan import Job
from safecl.experiments.reproduce.probe import Probe
from safecl.experiments.reproduce.results import Line, fill, judge, target_table
from safecl.experiments.reproduce.targets import TARGETS, Preset, Scale
from safecl.experiments.sweep.done import find_done
from safecl.experiments.sweep.plan import Cell, Plan, named
from safecl.experiments.sweep.sweep import How, run_cells
from safecl.lines import counted
from safecl.report import words
from safecl.report.gallery import data_address
from safecl.report.page import save
from safecl.report.runs import Run, read_run
from safecl.report.table import Table, as_csv, as_latex, as_markdown
from safecl.report.templates import make_folder, render, write
from safecl.streams.datasets import DATASETS
from safecl.streams.settings import (
    DatasetSettings,
    FolderSettings,
    StreamSettings,
    TableSettings,
    data_root,
)

TABLES = ("table", "heatmap", "parameters")  # kinds with rows of numbers
OVERVIEW = Path(__file__).parent / "overview.svg"
RECORDS = "records"  # folder of what the page knows of each target


@dataclass(frozen=True)
class Made:
    """What became of a target. ``claims``: each in words, and whether it holds. ``files``: names in
    its folder.
    """

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
    """Targets at a scale, in one folder; ``jobs``: of this scale and preset; ``repeat``: how many
    seeds, if given.
    """

    jobs: Sequence[Job]
    scale: Scale
    preset: Preset
    folder: Path
    repeat: int | None = None
    failed: dict[str, str] = field(default_factory=dict)  # by the names of cells

    def __post_init__(self) -> None:
        self.place = self.folder / f"{self.scale.name}-{self.preset}"
        self.runs_folder = self.folder / "runs"
        # each once
        self.cells = list({cell.name: cell for job in self.jobs for cell in job.cells}.values())
        self.done = find_done(self.cells, self.runs_folder)  # their names

    def missing(self) -> dict[str, set[str]]:
        """Missing data and weights, with the cells that need them; a run that is done needs
        none.
        """
        waiting = [cell for cell in self.cells if cell.name not in self.done]
        return missing([*waiting, *(cell for job in self.jobs for cell in job.shown.values())])

    def run(self, without: set[str], **how: Unpack[How]) -> None:
        """Run what is not done, except the cells ``without`` data or weights."""
        cells = [cell for cell in self.cells if cell.name not in without]
        make_folder(self.runs_folder)
        if cells:
            self.failed = run_cells(
                Plan(f"reproduce {self.scale.name}", cells), self.runs_folder, self.done, **how
            )
        self.done |= {cell.name for cell in cells} - self.failed.keys()

    def make(self, without: Mapping[str, set[str]], say: Callable[[str], None]) -> list[Made]:
        """Tables and figures of all targets from the finished runs, and the page."""
        make_folder(self.place)
        self.lacking = {
            name: sentence for sentence, names in [*without.items()][::-1] for name in names
        }
        probe = Probe(self.runs_folder)
        made = []
        for job in self.jobs:
            say(f"{job.target.name}: table and figure")
            made.append(self._make(job, probe))
        title = f"The paper's tables and figures: {self.scale.title}"
        seeds = counted(self.repeat or self.scale.repeat, "seed")
        about = (
            f"Scale {self.scale.name}, preset {self.preset}, {seeds}. Accuracies in percent; ± is"
            " the "
        )
        write_index(
            self.place,
            title,
            about + "standard deviation over seeds; diff. is ours minus the paper's.",
        )
        return made

    def _make(self, job: Job, probe: Probe) -> Made:
        target = job.target
        stem = self.place / job.target.name
        files = []
        names = [cell.name for cell in job.cells if cell.name in self.done]
        runs = {name: read_run(self.runs_folder / name) for name in names}
        lines = fill(job, runs, probe) if target.kind in TABLES else []
        columns = [column.label for column in job.columns]
        table = target_table(columns, lines)
        claims = judge(target, lines)
        drawing, reason = self._draw(job, lines, runs, probe)
        sentences, alt = (drawing.sentences, drawing.alt) if drawing else ((), "")
        sentences = (*sentences, *_replaced(job, runs))
        left_out = [
            *job.left_out,
            *self._not_run(job, runs),
            *([f"the figure: {reason}"] if reason else []),
        ]
        if lines:
            caption = (
                f"{target.title} ({target.source}); scale {self.scale.name}, preset {self.preset}"
            )
            texts = {
                "csv": as_csv(table),
                "tex": as_latex(table, caption),
                "md": as_markdown(table),
            }
            files = [
                write(stem.with_suffix(f".{kind}"), text, kind) for kind, text in texts.items()
            ]
        files += save(drawing.figure, stem) if drawing else []
        if target.kind == "overview":  # drawn by hand
            alt = target.caption
            files = [write(stem.with_suffix(".svg"), OVERVIEW.read_text(encoding="utf-8"), "svg")]
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

    def _draw(
        self, job: Job, lines: list[Line], runs: dict[str, Run], probe: Probe
    ) -> tuple[Drawing | None, str]:
        """The figure of a target that is one; without it, the reason."""
        if job.target.kind in ("table", "overview"):
            return None, ""
        streams = {
            label: cell for label, cell in job.shown.items() if cell.name not in self.lacking
        }
        try:
            drawing = draw(job, lines, runs, streams, probe)
        except SafeclError as error:
            return None, str(error)
        return drawing, (
            "" if drawing else "none of its runs is done, or none of its pictures is there"
        )

    def _not_run(self, job: Job, runs: dict[str, Run]) -> list[str]:
        reasons: dict[str, list[str]] = {}
        for cell in (*job.cells, *job.shown.values()):
            failed = (
                f"it failed: {self.failed[cell.name]}"
                if cell.name in self.failed
                else "it is not done"
            )
            if cell.name not in runs and (cell in job.cells or cell.name in self.lacking):
                reasons.setdefault(self.lacking.get(cell.name, failed), []).append(cell.title)
        return [f"{named(titles)}: {reason}" for reason, titles in reasons.items()]


def _replaced(job: Job, runs: Mapping[str, Run]) -> Iterator[str]:
    """A sentence where the slow learner of some run does not answer."""
    asked = {
        cell.name for entry in job.entries if entry.row.output == "slow" for cell in entry.runs
    } & runs.keys()
    if count := sum(
        any(line.notes.get("untuned") for line in runs[name].metrics) for name in asked
    ):
        yield (
            f"in {count} of {counted(len(asked), 'run')} the output slow is the untuned backbone's"
            " from session 2 on"
        )


def write_index(folder: Path, title: str, about: str) -> Path:
    """The page with every target that is kept in ``folder``."""
    files = [file for name in TARGETS if (file := folder / RECORDS / f"{name}.json").is_file()]
    targets = [TypeAdapter(Made).validate_json(file.read_bytes()) for file in files]
    svgs = {one.name: folder / f"{one.name}.svg" for one in targets if one.alt}
    figures = {
        name: data_address("image/svg+xml", file.read_bytes()) for name, file in svgs.items()
    }
    page = render("reproduction.html", title=title, about=about, targets=targets, figures=figures)
    return write(folder / "index.html", page)


def missing(cells: Iterable[Cell]) -> dict[str, set[str]]:
    """A sentence on each missing thing, with the names of the cells that need it."""
    data = cache(missing_data)
    network = cache(missing_weights)
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
    if (
        isinstance(stream, FolderSettings | TableSettings)
        and not Path(stream.path).expanduser().exists()
    ):
        return f"The pictures {stream.path} do not exist."
    return None


def missing_weights(backbone: BackboneSettings) -> str | None:
    """What is missing of a backbone's weights; None where they are there or can be fetched."""
    if (
        backbone.weights not in (None, "random")
        and not Path(backbone.weights).expanduser().is_file()
    ):
        return f"The weight file {backbone.weights} does not exist."
    try:
        if backbone.weights is None and backbone.name != EMBEDDED:
            hub.check_hub(backbone.name)
    except ConnectionError as error:
        known = (
            f"The weights of {backbone.name} are not cached, and the Hugging Face hub cannot be"
            f" reached ({error})"
        )
        return f"{known}; go online once, or copy them into its cache."
    return None
