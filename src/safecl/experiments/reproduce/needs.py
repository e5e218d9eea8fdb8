"""Datasets, folders and weights that runs need and that are missing, all named before anything starts."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from safecl.backbone import hub
from safecl.backbone.settings import EMBEDDED, BackboneSettings, embedded_weights
from safecl.errors import SafeclError
from safecl.experiments.sweep.plan import Cell
from safecl.streams.datasets import DATASETS
from safecl.streams.settings import DatasetSettings, FolderSettings, StreamSettings, TableSettings, data_root


def missing(cells: Iterable[Cell], weights: bool = True) -> dict[str, set[str]]:
    """A sentence on each thing that is missing, with the names of the cells that need it.

    ``weights``: whether the backbone is needed as well as the pictures.
    """
    data, network = cache(missing_data), cache(missing_weights)
    found: dict[str, set[str]] = {}
    for cell in cells:
        looks: list[tuple[Any, Any]] = [(data, cell.settings.stream)]
        looks += [(network, cell.settings.backbone)] if weights else []
        for look, settings in looks:
            sentence = look(settings)
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
    if backbone.weights == "random":
        return None
    if backbone.weights is not None:
        there = Path(backbone.weights).expanduser().is_file()
        return None if there else f"The weight file {backbone.weights} does not exist."
    if backbone.name == EMBEDDED:
        embedded_weights()
        return None
    try:
        hub.check_hub(backbone.name)
    except ConnectionError as error:
        return (
            f"The weights of {backbone.name} are not cached, and the Hugging Face hub cannot be reached ({error}); go "
            "online once, or copy them into its cache."
        )
    return None
