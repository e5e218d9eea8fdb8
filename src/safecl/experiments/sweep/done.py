"""Which runs below a folder are done: with the settings, the pictures and the weights of today."""

from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from safecl.atomic import read_json
from safecl.backbone.load import load_backbone
from safecl.engine.folder import check_metrics
from safecl.engine.identity import FILE, PARTS, Identity, data_of, difference, of_parts
from safecl.errors import SafeclError
from safecl.experiments.config import RunSettings
from safecl.experiments.launch import build
from safecl.experiments.sweep.plan import Cell, named
from safecl.streams.catalog import read


def find_done(cells: Iterable[Cell], folder: Path) -> set[str]:
    """Names of finished runs. Other pictures or weights are refused; where none can be read, a
    finished run stands.
    """
    pictures = cache(read)
    weights = cache(load_backbone)  # those that several runs share are read once
    data: dict[Any, dict[str, Any]] = {}

    def identify(settings: RunSettings) -> Identity:
        backbone, stream, resolved, _ = build(settings, pictures=pictures, weights=weights)
        key = settings.stream, settings.seed, settings.method.joint, backbone.size
        if key not in data:
            data[key] = data_of(stream)
        return of_parts(resolved, backbone, data[key])

    done: set[str] = set()
    others: dict[str, list[str]] = {}
    for cell in cells:
        before = read_json(folder / cell.name / FILE)
        if before is None:
            continue
        found = None
        with suppress(SafeclError):
            found = difference(before, identify(cell.settings))
        if found is not None:
            others.setdefault(found, []).append(cell.title)
        elif read_json(folder / cell.name / "summary.json") is not None:
            check_metrics(folder / cell.name, before)
            done.add(cell.name)
    if others:
        lines = "".join(f"\n  {named(titles)}: {found}" for found, titles in others.items())
        way = "  Choose another folder with --folder, or delete theirs to run them again."
        raise SafeclError("sweep.folder.other-runs", folder=folder, lines=lines, way=way)
    return done


def check_rows(cells: Iterable[Cell], folder: Path) -> None:
    """Refuse to average runs of other pictures or weights: the machines of a cluster may each have
    their own.
    """
    firsts: dict[str, tuple[str, str, int]] = {}
    for cell in cells:
        known = read_json(folder / cell.name / FILE)
        if known is None:
            continue
        sums = [session[part]["sum"] for session in known["sessions"] for part in PARTS]
        # of glyphs, each seed has its own
        total = 0 if cell.settings.stream.kind == "glyphs" else sum(sums) % 2**64
        weights = known["backbone"]["weights"]
        title, *first = firsts.setdefault(cell.configuration, (cell.title, weights, total))
        if first != [weights, total]:
            what = "weights" if first[0] != weights else "pictures"
            way = (
                "delete the folder of the wrong one, and repeat the sweep where all machines have"
                " the same"
            )
            raise SafeclError(
                "sweep.folder.other-pictures",
                one=title,
                other=cell.title,
                folder=folder,
                what=what,
                way=way,
            )
