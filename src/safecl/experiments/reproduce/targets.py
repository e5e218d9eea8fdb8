"""Targets (tables and figures of the paper as data) and scales (what is run in place of the paper's
data).
"""

import json
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import Field, PositiveInt

from safecl.errors import SafeclError
from safecl.experiments.config import read_shipped
from safecl.settings import Settings

Kind: TypeAlias = Literal[
    "table", "heatmap", "tsne", "sessions", "weights", "parameters", "datasets", "overview"
]
Measure: TypeAlias = Literal["final", "average", "learnable"]
Preset: TypeAlias = Literal["safe", "paper", "published"]
SAFE = "safe"
BASELINE = "baseline"  # rows that depend on the preset chosen
ALL = "all"
DIR = "{dir}"  # stands for the given folder
TARGETS = (  # in the order of the paper
    *(
        "table-sota",
        "table-domainnet",
        "table-ablation",
        "table-aggregation",
        "table-slow",
        "table-fast",
        "table-pet",
    ),
    *(
        "table-lambda-cos",
        "table-gamma",
        "table-teacher",
        "fig-overview",
        "fig-sensitivity",
        "fig-tsne",
    ),
    *("fig-sessions", "fig-weights", "fig-parameters", "fig-datasets"),
)


class Change(Settings):
    """What a row or a column changes: settings by dotted keys, and others for one of the
    presets.
    """

    label: str = Field(description="its head")
    set: dict[str, Any] = Field({}, description="settings by dotted keys")
    presets: dict[Preset, dict[str, Any]] = Field(
        {}, description="in place of set, with this preset"
    )
    scales: tuple[str, ...] = Field((), description="where it is run; everywhere if not given")

    def changes(self, preset: Preset) -> dict[str, Any]:
        return self.presets.get(preset, self.set)

    def at(self, scale: str) -> bool:
        return scale in (self.scales or (scale,))


class Column(Change):
    """A column: a stream, a number of the run, a setting, or the mean of the columns before it."""

    stream: str | None = Field(
        None, description="one of the paper's datasets; that of the target if not given"
    )
    measure: Measure = Field("final", description="which number of a run")
    answer: dict[str, Any] = Field(
        {}, description="settings with which a finished run is evaluated again"
    )
    mean: bool = Field(False, description="the mean of the other columns")


class Row(Change):
    """A row: a method, or one output of it, with the paper's numbers (one a column)."""

    run: str = Field(description="safe and baseline: by the preset; else a preset")
    output: str | None = Field(
        None, description="which output of the method; its own answer if not given"
    )
    network: str | None = Field(
        None, description="which features: backbone, or a key of the method's networks"
    )
    paper: tuple[float | None, ...] = Field((), description="the paper's numbers")


class Claim(Settings):
    """What the paper says of its numbers: ``row`` is above each of ``over`` in the last column of
    final accuracies.
    """

    says: str
    row: str
    over: tuple[str, ...]


class Target(Settings):
    """A table or a figure of the paper."""

    name: str
    title: str
    source: str = Field(description="where in the paper")
    kind: Kind
    caption: str
    stream: str | None = None
    set: dict[str, Any] = Field({}, description="settings of all runs")
    columns: tuple[Column, ...] = (Column(label="Final"),)
    rows: tuple[Row, ...] = ()
    claims: tuple[Claim, ...] = ()
    axes: tuple[str, str] | None = Field(None, description="names of rows and columns")
    late: float = Field(0.0, description="share of the sessions that are late ones")


def by_preset(preset: Preset) -> dict[str, str]:
    """What the rows that depend on the preset chosen run."""
    return {SAFE: preset, BASELINE: "ranpac" if preset == "safe" else "ranpac-published"}


@cache
def read_target(name: str) -> Target:
    return Target.model_validate(
        {"name": name, **read_shipped("target", name, "reproduce", "targets")}
    )


class StandIn(Settings):
    """A stream of a scale, and the paper's datasets that it stands for."""

    name: str
    title: str
    stands_for: tuple[str, ...] = Field(alias="for")
    set: dict[str, Any]
    tuned: dict[str, Any] = Field({}, description="settings of SAFE and its baseline alone")


class Scale(Settings):
    """What is run in place of the paper's data, backbones and settings."""

    name: str
    title: str
    preset: Preset = Field(description="of SAFE, if none is chosen")
    base: dict[str, Any]
    variants: tuple[dict[str, Any], ...] = ()
    seeds: tuple[dict[str, Any], ...] = Field(description="settings of each repetition")
    repeat: PositiveInt = Field(description="repetitions, if their number is not chosen")
    streams: tuple[StandIn, ...]

    def stream(self, name: str) -> StandIn | None:
        """What stands for one of the paper's datasets; None where nothing does."""
        return next((one for one in self.streams if name in one.stands_for), None)


@cache
def read_scale(name: str, folder: Path | None = None) -> Scale:
    """The scale of this name; ``folder``: of given weights and pictures."""
    text = json.dumps({"name": name, **read_shipped("scale", name, "reproduce", "scales")})
    if DIR in text and folder is None:
        raise SafeclError("reproduce.scale.no-folder", name=name)
    if DIR not in text and folder is not None:
        raise SafeclError("reproduce.scale.folder-idle", folder=folder, name=name)
    place = json.dumps(str(folder.expanduser().resolve()))[1:-1] if folder else ""
    return Scale.model_validate_json(text.replace(DIR, place))
