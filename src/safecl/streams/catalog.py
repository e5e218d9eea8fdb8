"""Open a stream by its settings or by a short form of them."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, Unpack

from safecl.errors import SafeclError
from safecl.randomness import derive
from safecl.settings import Settings, refuse_idle
from safecl.streams.check import Rules
from safecl.streams.collection import Collection, make_stream
from safecl.streams.datasets import DATASETS
from safecl.streams.datasets.dataset import Dataset, record
from safecl.streams.datasets.plans import SPLITS
from safecl.streams.drawn.glyphs import glyph_transform, glyphs
from safecl.streams.pictures.cache import cache_folder, cached
from safecl.streams.pictures.images import ArrayPictures, Transform
from safecl.streams.settings import (
    DatasetSettings,
    FilesSettings,
    StreamSettings,
    data_root,
    parse_stream,
    short_form,
)
from safecl.streams.sources.arrays import hugging_face
from safecl.streams.sources.folder import read_folder
from safecl.streams.sources.table import read_manifest
from safecl.streams.stream import Stream
from safecl.streams.survey import Report, survey, wrong_counts

S = TypeVar("S", bound=Settings)


def open_stream(
    stream: str | StreamSettings,
    *,
    size: int | None = None,
    margin: float | None = None,
    seed: int = 0,
    data: Collection | None = None,
    **options: Any,
) -> Stream:
    """The ``stream`` of these settings, or of a short form with ``options``:
    ``open_stream("folder:photos", step=10)``.

    ``size``: side of the inputs, in a run the backbone's; ``margin``: what is resized beyond it
    where neither settings nor data set say so. ``seed``: of the pictures held out for validation,
    of the class order and the test split where these follow it, and of all pictures of glyphs.
    ``data``: its pictures, where they were read before. ``options``: the keys of the settings of
    this kind of stream.
    """
    if isinstance(stream, str):
        stream = parse_stream({**short_form(stream), **options})
        refuse_idle(stream, options)
    elif options:
        raise TypeError(f"options go with a short form, not with settings: {', '.join(options)}")
    if size is not None and size < 1:
        raise SafeclError("stream.size.range", size=size)
    if stream.kind == "glyphs":
        drawn = stream.model_dump(exclude={"kind", "protocol"})
        made = glyphs(stream.protocol or "class", **drawn, seed=seed, size=size)
        made.sized = size is not None
        return made
    stream = seeded(stream, seed)
    dataset = DATASETS[stream.name] if stream.kind == "dataset" else None
    keys = stream.model_dump(
        include={"protocol", "first", "step", "order", "order_seed", "domains", "held_out"}
    )
    if dataset is not None:
        keys["protocol"] = keys["protocol"] or dataset.protocol
        if keys["protocol"] == dataset.protocol == "class" and stream.step is None:
            keys |= {"first": stream.first or dataset.first, "step": dataset.step}
        if not dataset.shuffled:
            keys["order_seed"] = None
    transform = transform_of(stream, size, margin)
    found = with_cache(read(stream) if data is None else data, transform, stream.cache)
    made = make_stream(found, transform=transform, seed=seed, **keys)
    made.sized = size is not None
    return made


def seeded(stream: S, seed: int) -> S:
    """The settings with numbers where class order and test split follow the ``seed`` of a run."""
    own = {
        key: derive(seed, key)
        for key in ("order_seed", "split_seed")
        if getattr(stream, key, None) == "seed"
    }
    return stream.model_copy(update=own)


def transform_of(
    stream: StreamSettings | None, size: int | None = None, margin: float | None = None
) -> Transform:
    """How the pictures of a stream become inputs of side ``size``; None: of a stream that no
    settings name. ``margin``: see ``open_stream``.
    """
    if stream is not None and stream.kind == "glyphs":
        return glyph_transform(size)
    values: dict[str, Any] = {} if size is None else {"size": size}
    values |= {} if margin is None else {"margin": margin}
    if stream is not None:
        values |= {"margin": DATASETS[stream.name].margin} if stream.kind == "dataset" else {}
        values |= stream.model_dump(include={"margin", "scale", "ratio", "flip"}, exclude_none=True)
    return Transform(**values)


def read(stream: StreamSettings, **rules: Unpack[Rules]) -> Collection:
    """The pictures of a stream, not yet cut into sessions; ``rules`` replace those of a folder or
    table.

    A test split that follows the seed of a run is that of seed 0, unless the settings are
    ``seeded``.
    """
    stream = seeded(stream, 0)
    if isinstance(stream, FilesSettings):
        keys = {"test_fraction", "split_seed", "unreadable", "duplicates"}
        own: Any = stream.model_dump(include=keys) | rules
        if stream.kind == "folder":
            return read_folder(stream.path, protocol=stream.protocol, **own)
        return read_manifest(stream.path, **own)
    if stream.kind == "hf":
        return hugging_face(
            **stream.model_dump(include={"name", "image", "label", "test_fraction", "split_seed"})
        )
    if stream.kind == "dataset":
        data, dataset, split = read_dataset(stream)
        for difference in wrong_counts(data, dataset, split):
            warnings.warn(f"{difference}.", stacklevel=2)
        return data
    raise SafeclError("stream.glyphs.nothing-to-check")


def read_dataset(stream: DatasetSettings) -> tuple[Collection, Dataset, str]:
    """A prepared dataset, and which of its splits it is."""
    dataset = DATASETS[stream.name]
    place = dataset.at(data_root(stream.root))
    split = str(record(place).get("split") or next(iter(dataset.counts)))
    return replace(dataset.read(place), split=SPLITS.get(split, split)), dataset, split


def check_stream(stream: StreamSettings) -> Report:
    """What ``safecl data check`` says about the pictures that a run with these settings would
    read.
    """
    if stream.kind == "dataset":
        return survey(*read_dataset(stream))
    found: list[SafeclError] = []
    rules = Rules(refuse=found.append)
    allowed = False
    if isinstance(stream, FilesSettings):
        # duplicates and broken pictures are counted by the survey
        allowed = stream.duplicates == "allow"
        rules |= {
            "duplicates": "allow",
            "unreadable": "keep" if stream.unreadable == "refuse" else "skip",
        }
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        data = read(stream, **rules)
    report = survey(data, duplicates_allowed=allowed)
    report.warnings.extend(str(w.message).rstrip(".") for w in said)
    report.problems[:0] = [str(error).rstrip(".") for error in found]
    return report


def with_cache(data: Collection, transform: Transform, cache: bool | str | Path) -> Collection:
    """The collection with its views kept on disk; what is in memory and small already has its
    canvases there.
    """
    folder = cache_folder(data.home, cache)
    if folder is None:
        return data
    views = ("plain",) if isinstance(data.train, ArrayPictures) else ("plain", "canvas")
    train = cached(data.train, transform, folder, views)
    test = cached(data.test, transform, folder, ("plain",))
    return replace(data, train=train, test=test)
