"""How long runs will take and what they will keep on disk, roughly, before they start."""

import timeit
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch

from safecl.backbone.load import load_backbone
from safecl.backbone.settings import EMBEDDED, BackboneSettings
from safecl.engine.device import choose_device, choose_precision
from safecl.experiments.config import RunSettings
from safecl.experiments.sweep.local import visible_gpus
from safecl.experiments.sweep.plan import Cell
from safecl.report.runs import Run
from safecl.streams.catalog import open_stream
from safecl.streams.settings import StreamSettings

START_SECONDS = 8.0  # of a process until its first step
STEP = 4.0  # forward passes that a training picture costs: forward, backward, and the forward pass of a teacher
ANSWER_BYTES = 300  # of a test picture: its line of predictions.jsonl
FIXED_BYTES = 2_000_000  # of examples, logs and small weights
TIMED_PASSES = 4  # the fastest counts


class Size(NamedTuple):
    """Pictures of a stream: of the first session, of all sessions, of all tests that a run makes; and its classes."""

    first: int
    train: int
    tested: int
    classes: int


class Estimate(NamedTuple):
    """Seconds and bytes of runs; ``measured``: whether finished runs of this folder were used."""

    seconds: float
    bytes: float
    measured: bool


def estimate(cells: Sequence[Cell], done: Sequence[tuple[Cell, Run]], at_once: int) -> Estimate:
    """Of ``cells``, ``at_once`` beside each other: from a timed forward pass, corrected by what finished runs took."""
    alone = sum(passes(cell.settings) / rate(cell.settings) for cell in cells)
    expected = sum(passes(cell.settings) / rate(cell.settings) for cell, _ in done)
    took = sum(run.seconds for _, run in done)
    training = alone * took / expected / at_once if expected else alone / max(1, len(visible_gpus()))
    seconds = training + START_SECONDS * len(cells) / at_once
    return Estimate(seconds, sum(kept(cell.settings) for cell in cells), bool(expected))


def passes(settings: RunSettings) -> float:
    """How many pictures go forward through the backbone in a run; a training step counts ``STEP`` times."""
    size, kind, epochs = stream_size(settings.stream), settings.method.kind, settings.train.epochs
    trained = 0 if kind == "no training" else epochs * size.first
    if kind not in ("no training", "first session"):
        trained += (settings.train.later_epochs or epochs) * (size.train - size.first)
    return STEP * trained + settings.method.networks * (size.train + size.tested)


def kept(settings: RunSettings) -> float:
    """Bytes of a run's folder: its two newest states with the matrices of a ridge head, and the answers to tests."""
    size = stream_size(settings.stream)
    ridge: int = getattr(getattr(settings.method, "ridge", None), "size", 0)
    state = settings.method.grams * (4 * ridge * (ridge + 1) / 2 + 2 * 4 * ridge * size.classes)
    if settings.method.covariances:
        state += size.classes * 4 * _measured(settings.backbone, settings.device, settings.precision)[1] ** 2 / 2
    return float(2 * state + ANSWER_BYTES * size.tested + FIXED_BYTES)


@cache
def stream_size(settings: StreamSettings) -> Size:
    """The sizes of a stream, without decoding a picture."""
    stream = open_stream(settings)
    sessions = [len(session.train) for session in stream]
    tests = [len(stream.test(number)) for number in range(1, len(stream.test_parts) + 1)]
    tested = sum(tests[part - 1] for number in range(1, len(sessions) + 1) for part in stream.tested(number))
    return Size(sessions[0], sum(sessions), tested, len(stream.labels))


def rate(settings: RunSettings) -> float:
    """Pictures per second forward through a run's backbone on this machine."""
    return _measured(settings.backbone, settings.device, settings.precision)[0]


@cache
def _measured(settings: BackboneSettings, device: str, precision: str) -> tuple[float, int]:
    """Rate and width, with random weights where those of a network would have to be fetched."""
    where = choose_device(device)
    if settings.weights is None and settings.name != EMBEDDED:
        settings = settings.model_copy(update={"weights": "random"})
    backbone = load_backbone(settings).to(where, choose_precision(precision, where))
    images = torch.rand(8 if where.type == "cpu" else 256, 3, backbone.size, backbone.size, device=where)
    with torch.no_grad():
        seconds = timeit.repeat(lambda: backbone.features(images).sum().item(), repeat=TIMED_PASSES, number=1)
    return len(images) / max(min(seconds), 1e-6), backbone.width
