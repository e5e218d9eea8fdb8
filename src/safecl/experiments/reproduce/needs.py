"""What runs need and is not there: datasets, folders, weights. All of it is named at once, before anything starts."""

from collections.abc import Callable, Iterable
from pathlib import Path

from safecl.backbone.settings import EMBEDDED, BackboneSettings, embedded_weights
from safecl.errors import SafeclError
from safecl.experiments.sweep.plan import Cell
from safecl.streams.settings import DatasetSettings, FolderSettings, StreamSettings, TableSettings, data_root


def missing(cells: Iterable[Cell]) -> dict[str, set[str]]:
    """A sentence for each thing that is missing, with the names of the cells that need it."""
    found: dict[str, set[str]] = {}
    known: dict[str, str | None] = {}
    for cell in cells:
        for key, look in (
            (cell.settings.stream.model_dump_json(include={"kind", "name", "root", "path"}), _stream(cell)),
            (cell.settings.backbone.model_dump_json(), _weights(cell)),
        ):
            if key not in known:
                known[key] = look()
            sentence = known[key]
            if sentence is not None:
                found.setdefault(sentence, set()).add(cell.name)
    return found


def _stream(cell: Cell) -> Callable[[], str | None]:
    return lambda: missing_data(cell.settings.stream)


def _weights(cell: Cell) -> Callable[[], str | None]:
    return lambda: missing_weights(cell.settings.backbone)


def missing_data(stream: StreamSettings) -> str | None:
    """What is missing of a stream's pictures; None where they are there."""
    if isinstance(stream, DatasetSettings):
        from safecl.streams.datasets import DATASETS

        try:
            DATASETS[stream.name].at(data_root(stream.root))
        except SafeclError as error:
            return str(error)
    if isinstance(stream, FolderSettings | TableSettings) and not Path(stream.path).expanduser().exists():
        return f"The pictures {stream.path} are not there."
    return None


def missing_weights(backbone: BackboneSettings) -> str | None:
    """What is missing of a backbone's weights; None where they are there or can be fetched."""
    if backbone.weights == "random":
        return None
    if backbone.weights is not None:
        there = Path(backbone.weights).expanduser().is_file()
        return None if there else f"The weight file {backbone.weights} is not there."
    if backbone.name == EMBEDDED:
        embedded_weights()
        return None
    from safecl.backbone.hub import check_hub

    try:
        check_hub(backbone.name)
    except ConnectionError as error:
        return (
            f"The weights of {backbone.name} are not cached, and the Hugging Face hub cannot be reached ({error}); go "
            "online once, or copy them into its cache."
        )
    return None
