"""Which runs below a folder are done: with the settings, the pictures and the weights of today."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from safecl.backbone.load import load_backbone
from safecl.engine.folder import read_json
from safecl.engine.identity import FILE, PARTS, Identity, data_of, difference, of_parts
from safecl.errors import SafeclError
from safecl.experiments.config import RunSettings
from safecl.experiments.launch import build
from safecl.experiments.sweep.plan import Cell, named
from safecl.streams.catalog import read, seeded
from safecl.streams.stream import Stream


class Identities:
    """What runs are, by their settings. Pictures and weights that several share are read once."""

    def __init__(self) -> None:
        self._pictures, self._weights = cache(read), cache(load_backbone)
        self._data: dict[Any, dict[str, Any]] = {}

    def of(self, settings: RunSettings, stream: Stream | None = None) -> Identity:
        backbone, opened, resolved, _ = build(settings, stream, pictures=self._pictures, weights=self._weights)
        key = settings.stream if stream is None else stream, settings.seed, settings.method.joint, backbone.size
        if key not in self._data:
            self._data[key] = data_of(opened)
        return of_parts(resolved, backbone, self._data[key])


def find_done(cells: Iterable[Cell], folder: Path, identify: Callable[[Cell], Identity] | None = None) -> set[str]:
    """Names of finished runs. Other pictures or weights are refused; where none can be read, a finished run stands."""
    identities = Identities()
    identify = identify or (lambda cell: identities.of(cell.settings))
    done: set[str] = set()
    others: dict[str, list[str]] = {}
    for cell in cells:
        before = read_json(folder / cell.name / FILE)
        if before is None:
            continue
        found = None
        with suppress(SafeclError):
            found = difference(before, identify(cell))
        if found is not None:
            others.setdefault(found, []).append(cell.title)
        elif read_json(folder / cell.name / "summary.json") is not None:
            done.add(cell.name)
    if others:
        lines = "".join(f"\n  {named(titles)}: {found}" for found, titles in others.items())
        way = "  Choose another folder with --folder, or delete theirs to run them again."
        raise SafeclError(f"{folder} holds runs that are not those of today, and nothing was started:{lines}\n{way}")
    return done


def check_rows(cells: Iterable[Cell], folder: Path) -> None:
    """Refuse to average runs of other pictures or weights: the machines of a cluster may each have their own."""
    firsts: dict[str, tuple[str, Identity, int | None]] = {}
    for cell in cells:
        known = read_json(folder / cell.name / FILE)
        if known is None:
            continue
        found, stream = {**known, "settings": {}}, cell.settings.stream
        parts, drawn = (session[part] for session in known["sessions"] for part in PARTS), stream.kind == "glyphs"
        sums = [part.get("sum") for part in parts]  # which older runs did not note
        total = None if drawn or None in sums else sum(sums) % 2**64
        if drawn or stream.held_out or seeded(stream, 0) != stream:  # by the seed: the pictures, or their division
            found["sessions"] = []
        title, first, whole = firsts.setdefault(cell.configuration, (cell.title, found, total))
        changed = None not in (total, whole) and total != whole
        differs = difference(first, found) or ("other data: pictures have changed" if changed else None)
        if differs is not None:
            way = "delete the folder of the wrong one, and repeat the sweep where all machines have the same"
            raise SafeclError(f"{title} and {cell.title} in {folder} cannot be averaged: {differs}; {way}.")
