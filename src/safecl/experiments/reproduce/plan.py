"""Which runs a target needs at a scale. Every cell of a table is a run or a part of one; equal runs
are one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from safecl.backbone.settings import EMBEDDED
from safecl.configure.words import flat, parse_words
from safecl.errors import SafeclError
from safecl.experiments.reproduce.targets import (
    Column,
    Preset,
    Row,
    Scale,
    StandIn,
    Target,
    by_preset,
)
from safecl.experiments.sweep.plan import Cell, check_keys, resolve_cell

# a run that is never made: its settings open the stream
OPENED = Row(label="stream", run="simplecil")


class Entry(NamedTuple):
    """A cell of a table: where it stands, what the paper has there, and its run for each seed."""

    row: Row
    column: Column
    paper: float | None
    runs: tuple[Cell, ...]


@dataclass(frozen=True)
class Job:
    """A target at a scale: its rows and entries, the streams it shows, and what cannot be run, with
    the reason.
    """

    target: Target
    rows: list[Row]
    entries: list[Entry]
    streams: dict[str, StandIn] = field(default_factory=dict)  # by the label of the column
    # of a figure of datasets: whose streams are opened, not run
    shown: dict[str, Cell] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    @property
    def columns(self) -> list[Column]:
        """The columns of its table: those that are run, and their mean where there are several."""
        several = len(self.streams) > 1
        return [
            one
            for one in self.target.columns
            if one.label in self.streams or (one.mean and several)
        ]

    @property
    def cells(self) -> list[Cell]:
        return list({cell.name: cell for entry in self.entries for cell in entry.runs}.values())


def make_job(
    target: Target,
    scale: Scale,
    preset: Preset,
    words: Sequence[str] = (),
    repeat: int | None = None,
) -> Job:
    """The runs of a target. ``words``: ``key=value`` settings over all others. ``repeat``: how many
    seeds.
    """
    repeat = scale.repeat if repeat is None else repeat
    if not 1 <= repeat <= len(scale.seeds):
        raise SafeclError(
            "reproduce.seeds.range", repeat=repeat, name=scale.name, count=len(scale.seeds)
        )
    given = flat(parse_words(words))
    check_keys([given], "the words")
    rows = [row for row in target.rows if row.at(scale.name)]
    streams, left_out = _streams(target, scale)
    columns = [
        (place, column) for place, column in enumerate(target.columns) if column.label in streams
    ]
    entries = []
    for row in rows:
        for place, column in columns:
            stream = streams[column.label]
            tops = [{**seed, **given} for seed in scale.seeds[:repeat]]
            runs = [make_cell(target, row, column, stream, scale, preset, top) for top in tops]
            entries.append(Entry(row, column, row.paper[place] if row.paper else None, tuple(runs)))
    top = {**given, "backbone": EMBEDDED}
    by_column = columns if target.kind == "datasets" else []
    shown = {
        one.label: make_cell(target, OPENED, one, streams[one.label], scale, preset, top)
        for _, one in by_column
    }
    return Job(target, rows, entries, streams, shown, left_out)


def make_cell(
    target: Target,
    row: Row,
    column: Column,
    stream: StandIn,
    scale: Scale,
    preset: Preset,
    top: Mapping[str, Any],
) -> Cell:
    """One run: preset, scale, stream, target, column, row, and ``top`` (seed and words), each over
    those before it.
    """
    tuned = stream.tuned if row.run in by_preset(preset) else {}
    chosen = by_preset(preset).get(row.run, row.run)
    changes = _merged([target.set, column.changes(preset), row.changes(preset)])
    base = _merged([scale.base, stream.set, tuned])
    varied = _merged([changes, top, {"preset": chosen}])
    check_keys([base, varied], target.name)
    cell = resolve_cell(base, list(scale.variants), varied, set())
    told = {key: value for key, value in cell.varied.items() if key in (*changes, "seed")}
    return replace(cell, varied={"preset": chosen, "stream": stream.name, **told})


def _merged(layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Later layers over earlier ones; a whole group (``pet: ssf``) removes what an earlier layer
    has inside it.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in flat(layer).items():
            merged = {old: kept for old, kept in merged.items() if not old.startswith(f"{key}.")}
            merged[key] = value
    return merged


def _streams(target: Target, scale: Scale) -> tuple[dict[str, StandIn], list[str]]:
    """The stream of each column that is run, and what is not run, with the reason."""
    streams: dict[str, StandIn] = {}
    reasons: dict[str, list[str]] = {}
    by_stream = any(column.stream for column in target.columns)
    parts = []
    for axis, lines in zip(target.axes or ("", ""), (target.rows, target.columns), strict=True):
        omitted = [line.label for line in lines if not line.at(scale.name)]
        parts += [f"{axis} {', '.join(omitted)}".strip()] if omitted else []
    for column in target.columns:
        name = column.stream or target.stream
        if column.mean or name is None or not column.at(scale.name):
            continue
        stream = scale.stream(name)
        shown = next((label for label, one in streams.items() if by_stream and one is stream), None)
        if stream is None:
            reasons.setdefault("nothing stands for it at this scale", []).append(column.label)
        elif shown is not None:
            reasons.setdefault(
                f"{stream.title} stands for it as well, in the column {shown}", []
            ).append(column.label)
        else:
            streams[column.label] = stream
    left_out = [f"{'; '.join(parts)}: left out at this scale"] if parts else []
    return streams, left_out + [
        f"{', '.join(labels)}: {reason}" for reason, labels in reasons.items()
    ]
