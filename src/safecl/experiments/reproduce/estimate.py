"""How long runs will take and what they will keep on disk, roughly, before they start."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.backbone.load import load_backbone
from safecl.backbone.settings import EMBEDDED, BackboneSettings
from safecl.engine.device import choose_device, choose_precision
from safecl.experiments.config import RunSettings
from safecl.experiments.sweep.local import cores, visible_gpus
from safecl.experiments.sweep.plan import Cell
from safecl.report.runs import Run
from safecl.streams.datasets import DATASETS
from safecl.streams.drawn.characters import POOL
from safecl.streams.drawn.glyphs import DOMAINS
from safecl.streams.settings import DatasetSettings, FolderSettings, GlyphsSettings, StreamSettings

STARTS = 8.0  # seconds for a process until its first step
STEP = 4.0  # forward passes that a training picture costs: forward, backward, and the forward pass of a teacher
PICTURE = 300  # bytes that a run keeps of a test picture: its line of predictions.jsonl
TIMED = 4  # forward passes that are timed; the fastest counts
FIXED = 2_000_000  # bytes of examples, logs and small weights


@dataclass(frozen=True)
class Size:
    """Pictures of a stream: of the first session, of all sessions, of all tests that a run makes; and its classes."""

    first: int
    train: int
    tested: int
    classes: int


@dataclass(frozen=True)
class Estimate:
    """Seconds and bytes of runs; ``measured``: whether finished runs of this folder were used."""

    seconds: float
    bytes: float
    measured: bool


def estimate(cells: Sequence[Cell], done: Mapping[str, Run], done_cells: Sequence[Cell], at_once: int) -> Estimate:
    """Of the runs ``cells``, ``at_once`` of them beside each other.

    A forward pass is timed once for each backbone, with the machine to itself. Finished runs correct it: by how much
    they took longer beside each other.
    """
    alone = sum(passes(cell.settings) / rate(cell.settings) for cell in cells)
    known = [cell for cell in done_cells if cell.name in done]
    expected = sum(passes(cell.settings) / rate(cell.settings) for cell in known)
    took = sum(done[cell.name].seconds for cell in known)
    training = alone * took / expected / at_once if expected else alone / max(1, len(visible_gpus()))
    seconds = training + STARTS * len(cells) / at_once
    return Estimate(seconds, sum(kept(cell.settings) for cell in cells), bool(expected))


def at_once(runs: int, jobs: int | None, share: float) -> int:
    """How many runs go on beside each other on this machine; ``share``: what a run gets of a GPU."""
    most = int(len(visible_gpus()) / share + 1e-9) or cores()
    return max(1, min(jobs or most, runs))


def passes(settings: RunSettings) -> float:
    """How many pictures go forward through the backbone in a run; a training step counts ``STEP`` times."""
    size, kind = stream_size(settings.stream), settings.method.kind
    epochs = settings.train.epochs
    later = settings.train.later_epochs or epochs
    trained = {"no training": 0, "first session": epochs * size.first}.get(
        kind, epochs * size.first + later * (size.train - size.first)
    )
    return STEP * trained + settings.method.networks * (size.train + size.tested)


def kept(settings: RunSettings) -> float:
    """Bytes of a run's folder: its two newest states, and the answers to its test pictures."""
    size = stream_size(settings.stream)
    ridge: int = getattr(getattr(settings.method, "ridge", None), "size", 0)
    state = settings.method.grams * (4 * ridge * (ridge + 1) / 2 + 2 * 4 * ridge * size.classes)
    if settings.method.covariances:
        state += size.classes * 4 * width(settings) ** 2 / 2
    return float(2 * state + PICTURE * size.tested + FIXED)


@cache
def stream_size(stream: StreamSettings) -> Size:
    """The sizes of a stream, without reading a picture."""
    if isinstance(stream, GlyphsSettings):
        domain = stream.protocol == "domain"
        classes = stream.classes or (30 if domain else min(50, len(POOL)))
        sessions = stream.sessions or (len(DOMAINS) if domain else 5)
        each = classes if domain else classes / sessions
        return _size(each * stream.train, sessions, each * stream.test, domain, classes)
    if isinstance(stream, DatasetSettings):
        dataset = DATASETS[stream.name]
        train, test = next(iter(dataset.counts.values()))
        domain = dataset.protocol == "domain"
        sessions = len(dataset.domains) if domain else round(dataset.classes / dataset.step)
        return _size(train / sessions, sessions, test / sessions, domain, dataset.classes)
    if isinstance(stream, FolderSettings):
        return _folder(Path(stream.path).expanduser(), stream)
    return Size(0, 0, 0, 0)


def _size(train: float, sessions: int, test: float, domain: bool, classes: int) -> Size:
    """Of sessions of equal size; a domain-incremental stream is tested on all domains after every session."""
    tested = test * sessions * (sessions if domain else (sessions + 1) / 2)
    return Size(round(train), round(train * sessions), round(tested), classes)


def _folder(path: Path, stream: FolderSettings) -> Size:
    counts = [sum(file.is_file() for file in (path / part).rglob("*.*")) for part in ("train", "test")]
    inside = [folder for folder in (path / "train").iterdir() if folder.is_dir()] if (path / "train").is_dir() else []
    domain = stream.protocol == "domain"
    classes = len({one.name for folder in inside for one in folder.iterdir()}) if domain else len(inside)
    sessions = len(inside) if domain else -(-classes // (stream.step or max(classes // 10, 1)))
    sessions = max(sessions, 1)
    return _size(counts[0] / sessions, sessions, counts[1] / sessions, domain, classes)


def rate(settings: RunSettings) -> float:
    """Pictures a second forward through a run's backbone on this machine."""
    return _measured(settings.backbone, settings.device, settings.precision)[0]


def width(settings: RunSettings) -> int:
    """Length of a feature."""
    return _measured(settings.backbone, settings.device, settings.precision)[1]


@cache
def _measured(settings: BackboneSettings, device: str, precision: str) -> tuple[float, int]:
    """Rate and width, with random weights where those of a network would have to be fetched."""
    where = choose_device(device)
    there = settings.weights is not None or settings.name == EMBEDDED
    chosen = settings if there else settings.model_copy(update={"weights": "random"})
    backbone = load_backbone(chosen).to(where, choose_precision(precision, where))
    images = torch.rand(8 if where.type == "cpu" else 256, 3, backbone.size, backbone.size, device=where)
    with torch.no_grad():
        taken = [_seconds(backbone, images) for _ in range(TIMED)]
    return len(images) / min(taken), backbone.width


def _seconds(backbone: Backbone, images: Tensor) -> float:
    start = time.monotonic()
    backbone.features(images).sum().item()
    return max(time.monotonic() - start, 1e-6)
