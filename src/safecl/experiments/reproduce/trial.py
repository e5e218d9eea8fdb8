"""One step of one session of a run: whether its settings, its data and its network go together at all."""

import traceback
from pathlib import Path

from safecl.errors import SafeclError
from safecl.experiments.config import RunSettings
from safecl.experiments.launch import launch
from safecl.experiments.sweep.plan import Cell
from safecl.streams.catalog import open_stream
from safecl.streams.stream import Stream

CLASSES, EACH = 4, 2  # of the trial session, and pictures per class: one batch


def try_cell(cell: Cell, folder: Path) -> str:
    """Learn a few pictures of the first session in one step and test; gives the sentence of an error, or nothing."""
    try:
        settings, stream = shortened(cell)
        launch(settings, folder, given=cell.given, stream=stream)
    except SafeclError as error:
        return str(error)
    except Exception as error:  # the others are tried all the same
        traceback.print_exc()
        return f"It ended with {type(error).__name__}: {error}"
    return ""


def shortened(cell: Cell) -> tuple[RunSettings, Stream]:
    """Settings with one epoch of a batch that holds all pictures, and the part of the stream that a trial has."""
    settings = cell.settings
    batch = max(settings.train.batch_size, CLASSES * EACH)
    change = {"epochs": 1, "later_epochs": None, "later_horizon": None, "milestones": (), "batch_size": batch}
    short = settings.model_copy(update={"train": settings.train.model_copy(update=change)})
    return short, excerpt(open_stream(settings.stream, seed=settings.seed))


def excerpt(stream: Stream) -> Stream:
    return stream.excerpt(CLASSES, EACH)
