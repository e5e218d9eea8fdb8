"""A scale: on which data, with which backbone and for how long the targets are run."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field, PositiveInt

from safecl.errors import SafeclError
from safecl.experiments.config import read_shipped
from safecl.experiments.reproduce.targets import Preset
from safecl.settings import Settings

DIR = "{dir}"  # stands for the given folder


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
        raise SafeclError(f"--scale {name} needs the folder of weights and pictures: write it after the target.")
    if DIR not in text and folder is not None:
        raise SafeclError(f"{folder} means nothing to --scale {name}: only --scale assets takes a folder.")
    place = json.dumps(str(folder.expanduser().resolve()))[1:-1] if folder else ""
    return Scale.model_validate_json(text.replace(DIR, place))
