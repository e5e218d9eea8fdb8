"""Streams by name: the embedded one, the seven benchmarks, and anybody's own pictures."""

import os
import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from safecl.errors import SafeclError, unknown
from safecl.streams.cache import cache_folder, cached
from safecl.streams.check import Report, check, wrong_counts
from safecl.streams.collection import Collection, make_stream
from safecl.streams.datasets import DATASETS
from safecl.streams.datasets.dataset import SPLITS, Dataset, record
from safecl.streams.folder import read_folder
from safecl.streams.images import ArrayPictures, Pictures, Transform
from safecl.streams.manifest import read_manifest
from safecl.streams.sources import hugging_face
from safecl.streams.stream import Stream

FORMS = ("folder:PATH", "csv:PATH", "parquet:PATH", "hf:NAME")
READING = ("test_fraction", "split_seed", "unreadable", "duplicates")
OPTIONS: dict[str, tuple[str, ...]] = {  # what each kind of stream takes besides what all take
    "folder": READING,
    "csv": READING,
    "parquet": READING,
    "hf": ("test_fraction", "split_seed", "image", "label"),
    "glyphs": ("classes", "sessions", "train", "test", "difficulty"),
}
COMMON = ("order", "domains", "cache", "margin", "scale", "ratio", "flip")


def names() -> list[str]:
    """The streams that have a name; ``FORMS`` are the others."""
    return ["glyphs", *DATASETS]


def open_stream(
    name: str,
    *,
    root: str | Path | None = None,
    protocol: str | None = None,
    first: int | None = None,
    step: int | None = None,
    order_seed: int | None = 1993,
    size: int | None = None,
    held_out: float = 0.0,
    seed: int = 0,
    **options: Any,
) -> Stream:
    """The stream ``name``: one of ``names()``, or ``folder:PATH``, ``csv:PATH``, ``parquet:PATH``, ``hf:NAME``.

    ``root``: where the named datasets are prepared (``SAFECL_DATA``, or ``data``). ``first``, ``step``,
    ``order_seed``, ``order``: the sessions of a class-incremental stream; ``domains``: those of the others.
    ``size``: side of the inputs. ``held_out``: fraction of each session kept for validation. ``cache``: off, on, or
    a folder. ``margin``, ``scale``, ``ratio``, ``flip``: of ``Transform``.
    """
    kind = name.partition(":")[0] if ":" in name else canonical(name)
    check_options(kind, options)
    if kind == "glyphs":
        if first is not None or step is not None:
            raise SafeclError("The glyphs stream is cut by classes=… and sessions=…, not by first and step.")
        from safecl.streams.glyphs import glyphs

        given = {"protocol": protocol, "size": size} | options
        return glyphs(seed=seed, held_out=held_out, **{k: v for k, v in given.items() if v is not None})
    dataset = DATASETS.get(kind)
    data = read(name, root, protocol=protocol, **{k: v for k, v in options.items() if k not in COMMON})
    shaped = {k: v for k, v in options.items() if k in ("margin", "scale", "ratio", "flip")} | {"size": size}
    transform = reshaped(dataset.transform if dataset else Transform(), shaped)
    if dataset is not None:
        protocol = protocol or dataset.protocol
        if protocol == "class" and dataset.protocol == "class":
            first = first if first is not None else dataset.first if step is None else step
            step = step if step is not None else dataset.step
        order_seed = order_seed if dataset.shuffled else None
    return make_stream(
        with_cache(data, transform, options.get("cache", True)),
        protocol=protocol,
        first=first,
        step=step,
        order_seed=order_seed,
        order=options.get("order"),
        domains=options.get("domains"),
        transform=transform,
        held_out=held_out,
        seed=seed,
    )


def read(name: str, root: str | Path | None = None, *, protocol: str | None = None, **options: Any) -> Collection:
    """The pictures behind a name, not yet cut into sessions."""
    kind, _, rest = name.partition(":") if ":" in name else (canonical(name), "", "")
    if name.endswith(":") and kind in OPTIONS:
        raise SafeclError(f"The stream {name!r} lacks what comes after the colon, for example {kind}:pictures.")
    if kind == "folder":
        return read_folder(rest, protocol=protocol, **options)
    if kind in ("csv", "parquet"):
        return read_manifest(rest, **options)
    if kind == "hf":
        return hugging_face(rest, **options)
    if kind not in DATASETS:
        raise no_such(name)
    return read_dataset(DATASETS[kind], data_root(root))


def read_dataset(dataset: Dataset, root: Path) -> Collection:
    """A prepared dataset; counts that differ from the published ones are only worth a warning."""
    place = dataset.at(root)
    split = str(record(place).get("split") or next(iter(dataset.counts)))
    data = replace(dataset.read(place), split=SPLITS.get(split, split))
    for difference in wrong_counts(data, dataset, split):
        warnings.warn(f"{difference}.", stacklevel=2)
    return data


def check_by_name(name: str, root: str | Path | None = None, workers: int | None = None) -> Report:
    """What ``safecl data check`` says about a prepared dataset or about own pictures."""
    if name == "glyphs":
        raise SafeclError("The glyphs stream is drawn while it is read, so there is nothing to check.")
    dataset = DATASETS.get(name)
    if dataset is None:
        found: dict[str, Any] = (
            {"duplicates": "allow"} if name.partition(":")[0] in ("folder", "csv", "parquet") else {}
        )
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            data = read(name, root, **found)
        report = check(data, workers=workers)
        report.warnings.extend(str(w.message).rstrip(".") for w in said)
        return report
    place = dataset.at(data_root(root))
    split = str(record(place).get("split") or next(iter(dataset.counts)))
    return check(replace(dataset.read(place), split=SPLITS.get(split, split)), dataset, split, workers)


def data_root(root: str | Path | None) -> Path:
    return Path(root if root is not None else os.environ.get("SAFECL_DATA", "data")).expanduser()


def with_cache(data: Collection, transform: Transform, cache: bool | str | Path) -> Collection:
    """The collection with its views kept on disk; what is in memory and small already has its canvases there."""
    folder = cache_folder(data.home, cache)
    if folder is None:
        return data

    def through(pictures: Pictures, *views: str) -> Pictures:
        return cached(pictures, transform, folder, views)

    training = ("plain",) if isinstance(data.train, ArrayPictures) else ("plain", "canvas")
    return replace(data, train=through(data.train, *training), test=through(data.test, "plain"))


def reshaped(transform: Transform, given: dict[str, Any]) -> Transform:
    changes: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items() if v is not None}
    if changes.get("size", 1) < 1:
        raise SafeclError(f"The side of the inputs must be 1 or more, not {changes['size']}.")
    return replace(transform, **changes)


def check_options(kind: str, options: Iterable[str]) -> None:
    if kind not in OPTIONS and kind not in DATASETS:
        raise no_such(kind)
    allowed = (*OPTIONS.get(kind, ()), *(() if kind == "glyphs" else COMMON))
    for option in options:
        if option not in allowed:
            raise unknown(f"option of the stream {kind}", option, allowed)


def canonical(name: str) -> str:
    """``CIFAR-100``, ``imagenet_r`` and the like are the names one means."""

    def bare(text: str) -> str:
        return text.lower().replace("-", "").replace("_", "")

    return next((known for known in names() if bare(known) == bare(name)), name)


def no_such(name: str) -> SafeclError:
    if os.path.isdir(name):
        return SafeclError(f"There is no stream {name!r}, but there is such a folder: write folder:{name}.")
    return unknown("stream", name, [*names(), *FORMS])
