"""Datasets, folders and weights that runs need and that are missing, all named before anything starts."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from safecl.backbone import hub
from safecl.backbone.settings import EMBEDDED, BackboneSettings
from safecl.errors import SafeclError
from safecl.experiments.sweep.plan import Cell
from safecl.streams.datasets import DATASETS
from safecl.streams.settings import DatasetSettings, FolderSettings, StreamSettings, TableSettings, data_root


def missing(cells: Iterable[Cell], weights: bool = True) -> dict[str, set[str]]:
    """A sentence on each missing thing, with the names of the cells that need it; ``weights``: of the backbone too."""
    data, network = cache(missing_data), cache(missing_weights)
    found: dict[str, set[str]] = {}
    for cell in cells:
        for sentence in (data(cell.settings.stream), network(cell.settings.backbone) if weights else None):
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
        return (
            f"The weights of {backbone.name} are not cached, and the Hugging Face hub cannot be reached ({error}); go "
            "online once, or copy them into its cache."
        )
    return None
