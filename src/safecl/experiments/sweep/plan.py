"""The runs of a sweep: base settings, a grid of keys, extra rows. All are checked first, and
nothing heavy imported.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from safecl.configure.layers import (
    VARIANTS,
    Values,
    apply_variants,
    canonical,
    method_name,
    overlay,
)
from safecl.configure.sentences import keys
from safecl.configure.words import flat, nested, parse_words
from safecl.errors import SafeclError, unknown
from safecl.experiments.config import (
    RunSettings,
    presets,
    read_shipped,
    read_source,
    resolve,
    run_name,
)
from safecl.methods.catalog import method_settings
from safecl.methods.settings.base import Kind
from safecl.settings import flatten, idle

PARTS: dict[str, type] = {"base": dict, "grid": dict, "runs": list}
EVERY = "*"  # as a value of preset: every method that has a preset of its name
METHOD = {"preset", "method", "method.name"}  # keys that choose the method
MAX_NAMED = 3  # runs in a sentence
# nothing is chosen by test pictures
Objective: TypeAlias = Literal["validation.final", "validation.average"]


@dataclass(frozen=True)
class Cell:
    """One run of a sweep. ``varied``: the keys of grid and rows that make it, as written."""

    varied: dict[str, Any]
    settings: RunSettings

    @property
    def title(self) -> str:
        """The run in words: "preset=safe seed=1"."""
        return _title(self.varied)

    @cached_property
    def name(self) -> str:
        """The name of its folder: one per resolved settings."""
        return run_name(self.settings)

    @property
    def configuration(self) -> str:
        """The same for runs that differ in the seed alone."""
        return run_name(self.settings.model_copy(update={"seed": 0}))


class Plan(NamedTuple):
    """A sweep's name and its runs, no two of them alike."""

    name: str
    cells: list[Cell]


def make_plan(source: str, words: Sequence[str] = (), objective: Objective | None = None) -> Plan:
    """The runs of a sweep's file or preset; ``words`` replace values of the grid (``seed=[0,1]``)
    or go over the base.

    A key that the method of a run does not have is omitted from that run, and runs that are then
    alike are one.
    """
    parts = _read(source)
    variants = parts["base"].pop(VARIANTS, [])
    base = flat(parts["base"])
    grid = {key: _values(key, value, source) for key, value in flat(parts["grid"]).items()}
    rows = [flat(row) for row in parts["runs"]]
    for key, value in flat(parse_words(words)).items():
        if key in grid:
            grid[key] = _values(key, value if isinstance(value, list) else [value], source)
            rows = [row for row in rows if row.get(key) in (None, *grid[key])]
        else:
            base[key] = value
            rows = [{**row, key: value} if key in row else row for row in rows]
    every = _expand(grid, rows)
    check_keys([base, grid, *every], source)
    if not every:
        raise SafeclError("sweep.plan.empty", source=source)
    cells: dict[str, Cell] = {}
    wrong: dict[str, list[str]] = {}
    used: set[str] = set()
    for varied in every:
        try:
            cell = resolve_cell(base, variants, varied, used)
            if objective is not None and not cell.settings.stream.held_out:
                raise SafeclError("sweep.objective.no-validation", objective=objective)
            cells.setdefault(cell.name, cell)
        except SafeclError as error:
            wrong.setdefault(str(error), []).append(_title(varied))
    if wrong:
        lines = "".join(f"\n  {named(titles)}: {sentence}" for sentence, titles in wrong.items())
        bad = f"{sum(map(len, wrong.values()))} of {len(every)} runs of the sweep {source}"
        raise SafeclError("sweep.plan.wrong", bad=bad, lines=lines)
    idle = sorted({*base, *(key for varied in every for key in varied)} - used - METHOD)
    if idle:
        raise SafeclError("sweep.plan.idle", keys=", ".join(idle), source=source)
    return Plan(Path(source).stem, list(cells.values()))


def _read(source: str) -> dict[str, Any]:
    own = Path(source).suffix in (".yaml", ".yml")
    values = read_source(source) if own else read_shipped("sweep", source, "sweep", "sweeps")
    for key in values:
        if key not in PARTS:
            raise unknown(f"part of a sweep, in {source},", str(key), PARTS)
    found = {part: values.get(part) or kind() for part, kind in PARTS.items()}
    for part, kind in PARTS.items():
        rows = found[part] if kind is list else [found[part]]
        if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
            raise SafeclError(
                "sweep.plan.form", part=part, source=source, list_of="a list of " * (kind is list)
            )
    return found


def _values(key: str, value: Any, source: str) -> list[Any]:
    if key == "preset" and value in (EVERY, [EVERY]):
        return [EVERY]
    if not isinstance(value, list) or not value:
        raise SafeclError("sweep.grid.form", key=key, source=source)
    return value


def check_keys(parts: Iterable[Mapping[str, Any]], source: str) -> None:
    known = set(keys(RunSettings))
    for key in chain.from_iterable(parts):
        if key not in known:
            raise unknown(f"setting, in {source},", key, known)


def _expand(grid: Mapping[str, list[Any]], rows: Sequence[Values]) -> list[Values]:
    """The grid's runs, and each row repeated over the keys of the grid that it does not name."""
    every = [
        name
        for kind in get_args(Kind)
        for name, one in method_settings().items()
        if one.kind == kind
    ]
    every = [name for name in every if name in presets()]
    axes = {key: every if values == [EVERY] else values for key, values in grid.items()}
    found = []
    for row in [*([{}] if axes else []), *rows]:
        taken = {*row, *(METHOD if METHOD & row.keys() else ())}
        rest = {key: values for key, values in axes.items() if key not in taken}
        found += [
            {**row, **dict(zip(rest, values, strict=True))} for values in product(*rest.values())
        ]
    return [flat(varied) for varied in found]


def resolve_cell(base: Values, variants: list[Any], varied: Values, used: set[str]) -> Cell:
    """One run: ``varied`` over fitting ``variants`` over ``base`` over its preset; ``used`` gets
    its method's keys.
    """
    source = str(varied.get("preset", base.get("preset", "safe")))
    if METHOD & varied.keys():  # the base's other settings are of the method that is chosen
        base = {key: value for key, value in base.items() if key not in METHOD}
    chosen = {key: value for key, value in {**base, **varied}.items() if key in METHOD - {"preset"}}
    method = method_name(overlay(canonical(read_source(source)), canonical(nested(chosen))))
    if method not in method_settings():
        raise unknown("method", method, method_settings())
    has = set(keys(RunSettings, method))
    has -= (
        set()
        if method_settings()[method].trains
        else {key for key in has if key.startswith("train")}
    )
    own = has - {"preset"}
    low, high = (
        canonical(nested({key: part[key] for key in part if key in own})) for part in (base, varied)
    )
    if variants:
        low = apply_variants(
            {**low, VARIANTS: variants}, overlay(low, overlay({"method": {"name": method}}, high))
        )
    top = overlay(low, high)
    told = {key: value for key, value in varied.items() if key in has | METHOD}
    settings = resolve(source, values=top)
    for key in has & {*base, *varied}:
        if not any(idle(settings, flatten(canonical(nested({key: None}))))):
            used.add(key)
    return Cell(told, settings)


def spelt_settings(settings: RunSettings) -> dict[str, Any]:
    """Resolved settings by the keys that a user writes, the groups by their names."""
    found = flat(settings.model_dump(mode="json", exclude=None if settings.preset else {"preset"}))
    names = {
        "method": settings.method.name,
        "pet": settings.pet,
        "backbone": settings.backbone.name,
    }
    return {**found, **names, "stream": settings.stream.title}


def _title(varied: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in varied.items()) or "the base"


def named(titles: Sequence[str]) -> str:
    """The first runs by their titles, and how many more there are."""
    more = f" and {len(titles) - MAX_NAMED} more" if len(titles) > MAX_NAMED else ""
    return "; ".join(titles[:MAX_NAMED]) + more
