"""Reading a run's folder: the files the engine leaves there, checked and typed, finished or not."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import (
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)

from safecl.errors import SafeclError

Label = Annotated[str, BeforeValidator(str)]  # labels are the user's own: 7 and "7" are shown alike
# Python's json writes NaN and infinities; to a reader they are missing numbers.
Number = Annotated[
    float | None, BeforeValidator(lambda x: None if x in (math.inf, -math.inf) or x != x else x)
]
T = TypeVar("T")


class Part(BaseModel):
    """A piece of a run's files; fields that this page does not show are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class SessionFacts(Part):
    name: Label = ""
    classes: list[Label] = []


class StreamFacts(Part):
    name: str
    protocol: str = "class"
    sessions: list[SessionFacts] = []


class ParameterFacts(Part):
    learnable: int | None = None
    stored: int | None = None


class Facts(Part):
    """What a run is (facts.json): known before its first session."""

    method: str
    title: str
    main: str
    outputs: list[str]
    stream: StreamFacts
    version: str = ""
    backbone: str = Field("", validation_alias=AliasPath("backbone", "name"))
    preset: str = ""
    pet: str | None = None
    seed: int | None = None
    device: str = ""
    hardware: str = ""
    started: str = ""
    command: str = ""


class Validation(Part):
    """Accuracy on the held-out training pictures of all sessions so far."""

    counts: list[int] = []
    pooled: dict[str, Number] = {}


class PhaseTime(Part):
    phase: str
    seconds: Number = None


class Metrics(Part):
    """What was measured after one session (a line of metrics.jsonl); accuracies are fractions."""

    session: int = Field(ge=1)
    name: Label = ""
    classes_seen: int = 0
    test_counts: list[int] = []
    accuracy: dict[str, list[Number]] = {}
    pooled: dict[str, Number] = {}
    seen: dict[str, Number] = {}
    validation: Validation | None = None
    forgetting: dict[str, Number] = {}
    metrics: dict[str, dict[str, Number]] = {}  # those of other packages, by their names
    seconds: dict[str, Number] = {}
    peak_memory: Number = None
    images_per_second: Number = None
    bytes_kept: Number = None
    parameters: ParameterFacts = ParameterFacts()
    phases: list[PhaseTime] = []
    notes: dict[str, Any] = {}


class Loss(Part):
    """A logged training step (a line of losses.jsonl)."""

    session: int
    phase: str
    step: int
    loss: Number
    terms: dict[str, Number] = {}


class Example(Part):
    """A test picture and what each output said about it.

    ``why``: drawn by "chance", a mistake of a confused "pair", or one that a method's learners
    answer differently ("apart").
    """

    file: str
    label: Label
    why: str = "chance"
    session: int | None = None
    predictions: dict[str, Label] = {}


class Weight(NamedTuple):
    """The mean weight of the fast learner in the answers to a class."""

    label: str
    session: int
    fast: float


class Prediction(Part):
    """The answers to a test picture (a line of predictions.jsonl), and how much each learner counts
    in the method's.
    """

    session: int
    label: Label
    predicted: dict[str, Label] = {}
    weights: dict[str, Number] = {}


def kind_of_phase(phase: str) -> str:
    """``pilot`` for ``pilot2``: phases of a kind have one name, one figure and one column."""
    return phase.rstrip("0123456789")


@dataclass(frozen=True)
class Run:
    """A run's folder; what an unfinished run does not have yet is empty or None. What few pages
    need is read late.
    """

    folder: Path
    facts: Facts
    metrics: list[Metrics]
    ended: bool  # whether there is a summary.json; its numbers are computed from the metrics
    failed: str
    config: str

    @property
    def last(self) -> Metrics | None:
        return self.metrics[-1] if self.metrics else None

    @property
    def done(self) -> int:
        return self.last.session if self.last else 0

    @property
    def total(self) -> int:
        return max(len(self.facts.stream.sessions), self.done)

    @property
    def state(self) -> str:
        finished = self.ended and self.done == self.total
        return "finished" if finished else "failed" if self.failed else "unfinished"

    @property
    def parameters(self) -> ParameterFacts:
        """As counted after the newest session."""
        return self.last.parameters if self.last else ParameterFacts()

    @property
    def classes(self) -> int:
        """How many have been learned."""
        return self.last.classes_seen if self.last else 0

    @property
    def tested(self) -> int:
        """How many test pictures there were after the newest session."""
        return sum(self.last.test_counts) if self.last else 0

    @property
    def tests_ahead(self) -> bool:
        """Whether sessions to come are tested as well."""
        return self.last is not None and any(
            len(row) > self.done for row in self.last.accuracy.values()
        )

    @property
    def domain(self) -> bool:
        return self.facts.stream.protocol == "domain"

    def loss_parts(self) -> list[list[Loss]]:
        """The logged steps, one list for each phase of each session, in the order of training."""
        parts: dict[tuple[int, str], list[Loss]] = {}
        for line in self.losses:
            parts.setdefault((line.session, line.phase), []).append(line)
        ordered = sorted(parts.items(), key=lambda item: item[0][0])
        return [sorted(part, key=lambda line: line.step) for _, part in ordered]

    @cached_property
    def losses(self) -> list[Loss]:
        """The logged training steps. A resumed run may have written a step twice: the last word
        counts.
        """
        lines = _lines(self.folder / "losses.jsonl", Loss)
        return list({(line.session, line.phase, line.step): line for line in lines}.values())

    @cached_property
    def predictions(self) -> list[Prediction]:
        return list(_lines(self.folder / "predictions.jsonl", Prediction))

    def said(self, one: Prediction) -> str:
        """The method's own answer."""
        return one.predicted.get(self.facts.main, "")

    def weights(self) -> list[Weight]:
        """How much the fast learner counts in the answers to each class; empty where nothing is
        weighed.
        """
        found: dict[tuple[int, str], list[float]] = {}
        for one in self.predictions:
            value = one.weights.get("fast")
            if value is not None:
                found.setdefault((one.session, one.label), []).append(value)
        return [Weight(label, session, fmean(values)) for (session, label), values in found.items()]

    @cached_property
    def examples(self) -> list[Example]:
        path = self.folder / "examples.json"
        return _checked(TypeAdapter(list[Example]), read_bytes(path) or b"[]", path)

    @property
    def facts_text(self) -> str:
        return read_bytes(self.folder / "facts.json").decode("utf-8", "replace")


def read_run(folder: Path) -> Run:
    """Read a run's folder; one without facts.json is no run."""
    if not folder.is_dir():
        raise SafeclError("report.run.missing", folder=folder)
    if not (folder / "facts.json").is_file():
        inside = runs_inside(folder)
        why = f": {folder / 'facts.json'} is missing."
        if inside:
            why = (
                f" itself but runs inside it, such as {inside[0]}; safecl runs {folder} lists them."
            )
        raise SafeclError("report.run.none", folder=folder, why=why)
    # A resumed run may have written a session twice: the last word counts.
    metrics = {line.session: line for line in _lines(folder / "metrics.jsonl", Metrics)}
    failed = folder / "failed.json"
    return Run(
        folder=folder,
        facts=_checked(
            TypeAdapter(Facts), read_bytes(folder / "facts.json"), folder / "facts.json"
        ),
        metrics=[metrics[session] for session in sorted(metrics)],
        ended=(folder / "summary.json").exists(),
        failed=_checked(TypeAdapter(dict[str, str]), read_bytes(failed) or b"{}", failed).get(
            "error", ""
        ),
        config=read_bytes(folder / "resolved.yaml").decode("utf-8", "replace"),
    )


def find_runs(paths: Iterable[Path]) -> list[Path]:
    """The run folders among ``paths``, and for any other folder those inside it, as of a sweep; no
    file is one.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_file():
            raise SafeclError("report.run.file", path=path, parent=path.parent)
        inside = [] if (path / "facts.json").is_file() else runs_inside(path)
        found |= dict.fromkeys(inside or [path])
    return list(found)


def runs_inside(folder: Path) -> list[Path]:
    """The run folders below one, or else those below them."""
    files = sorted(folder.glob("*/facts.json")) or sorted(folder.glob("*/*/facts.json"))
    return [file.parent for file in files]


def read_bytes(path: Path) -> bytes:
    """What a file holds; nothing where there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise SafeclError("report.file.unreadable", path=path, strerror=error.strerror) from error


def _lines(path: Path, kind: type[T]) -> Iterator[T]:
    """The JSON lines of a file; a last one without a line break was torn by a kill and is
    omitted.
    """
    adapter = TypeAdapter(kind)
    # Split the bytes: a tear may fall inside a character, and a label may hold Unicode line breaks.
    lines = read_bytes(path).split(b"\n")
    for number, raw in enumerate(lines, start=1):
        try:
            if raw.strip():
                yield _checked(adapter, raw, path, f"line {number}, ")
        except SafeclError:
            if number < len(lines):
                raise


def _checked(adapter: TypeAdapter[T], raw: bytes, path: Path, where: str = "") -> T:
    try:
        return adapter.validate_json(raw)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the whole"
        message = f"{where}{field}: {first['msg'][0].lower()}{first['msg'][1:]}"
        raise SafeclError("report.file.damaged", path=path, message=message) from error
