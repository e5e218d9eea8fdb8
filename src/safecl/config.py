"""The configuration of a run: typed, with presets, and with errors that name the nearest right word."""

import re
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, Field, ValidationError, field_validator
from pydantic_core import ErrorDetails

from safecl.backbone import SUFFIXES, BackboneSettings
from safecl.engine.fit import TrainSettings
from safecl.errors import SafeclError, unknown
from safecl.heads import RidgeSettings
from safecl.methods.catalog import SETTINGS, MethodSettings
from safecl.methods.safe import SafeSettings
from safecl.pet import PetSettings
from safecl.settings import Settings

ALIASES = {"default": "safe"}


class StreamSettings(Settings):
    """Which pictures, in which sessions. What is not given is the stream's own habit."""

    name: str = Field("glyphs", description="glyphs, folder:PATH, csv:FILE, parquet:FILE, hf:NAME, or a dataset")
    protocol: Literal["class", "domain", "mixed"] | None = None
    root: str | None = Field(None, description="the folder that holds the prepared datasets")
    first: int | None = Field(None, gt=0, description="classes in the first session")
    step: int | None = Field(None, gt=0, description="classes in every later session")
    order_seed: int | None = Field(None, description="seed of the class order")
    classes: int | None = Field(None, gt=0, description="glyphs: how many characters")
    sessions: int | None = Field(None, gt=0, description="glyphs: how many sessions")
    train: int | None = Field(None, gt=0, description="glyphs: training pictures a class")
    test: int | None = Field(None, gt=0, description="glyphs: test pictures a class")

    def options(self) -> dict[str, Any]:
        """What was given, but for the name."""
        return {key: value for key, value in self.model_dump().items() if key != "name" and value is not None}


class RunSettings(Settings):
    """Everything that decides what a run computes."""

    method: MethodSettings = SafeSettings()
    stream: StreamSettings = StreamSettings()
    backbone: BackboneSettings = BackboneSettings()
    pet: PetSettings = PetSettings()
    ridge: RidgeSettings = RidgeSettings()
    train: TrainSettings = TrainSettings()
    seed: int = Field(0, ge=0)
    device: str = Field("auto", description="auto, cpu, cuda or mps")
    precision: Literal["auto", "fp32", "bf16"] = "auto"

    @field_validator("method", "stream", "backbone", "pet", mode="before")
    @classmethod
    def _short(cls, value: Any, info: Any) -> Any:
        return short_form(info.field_name, value)


def short_form(group: str, value: Any) -> Any:
    """``pet: ssf`` is short for ``pet: {kind: ssf}``, and the like."""
    if not isinstance(value, str):
        return value
    if group == "backbone" and value.endswith(SUFFIXES):
        return {"weights": value}
    return {{"pet": "kind"}.get(group, "name"): value}


def load(source: str, overrides: list[str]) -> RunSettings:
    """The settings of a preset or a YAML file, with ``key=value`` words on top."""
    values = _read(source)
    for word in overrides:
        _override(values, word)
    return validate(values, source)


def validate(values: dict[str, Any], source: str = "the configuration") -> RunSettings:
    """Typed settings, or one sentence on the first thing that is wrong."""
    method = values.get("method")
    name = method.get("name", "safe") if isinstance(method, dict) else method
    if name is not None and name not in SETTINGS:
        raise unknown("method", str(name), SETTINGS)
    if isinstance(method, dict):
        values = {**values, "method": {"name": "safe", **method}}
    try:
        return RunSettings.model_validate(values)
    except ValidationError as error:
        raise _sentence(error.errors()[0], source) from error


def presets() -> list[str]:
    """Names of the presets that ship with the package."""
    folder = resources.files("safecl") / "presets"
    return sorted(file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml"))


def _read(source: str) -> dict[str, Any]:
    path = Path(source)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise SafeclError(f"The configuration {source} does not exist.")
        text = path.read_text()
    else:
        name = ALIASES.get(source, source)
        if name not in presets():
            raise unknown("preset", source, [*presets(), *ALIASES])
        text = (resources.files("safecl") / "presets" / f"{name}.yaml").read_text()
    try:
        values = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise SafeclError(f"{source} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise SafeclError(f"{source} must hold keys and values, not a {type(values).__name__}.")
    return values


def _override(values: dict[str, Any], word: str) -> None:
    """Set one ``key=value``; a dotted key goes into a group, a bare group name takes its short form."""
    key, equals, text = word.partition("=")
    if not equals or not key:
        raise SafeclError(f"{word!r} is not of the form key=value, for example seed=1 or train.epochs=5.")
    group, *rest = key.split(".")
    value = text if re.match(r"^\w+:", text) else yaml.safe_load(text)
    if not rest:
        old, new = values.get(group), short_form(group, value)
        keeps = group == "pet" and isinstance(old, dict) and isinstance(new, dict)
        values[group] = {**old, **new} if keeps else new
        return
    inside = short_form(group, values.get(group) or {})
    if not isinstance(inside, dict):
        raise SafeclError(f"{group!r} has no settings inside it, so {key!r} means nothing.")
    values[group] = {**inside, ".".join(rest): value}


def _sentence(error: ErrorDetails, source: str) -> SafeclError:
    """One pydantic error in the user's words."""
    place = [str(part) for part in error["loc"]]
    if len(place) > 1 and place[0] == "method":
        place = [place[0], *place[2:]]  # pydantic names the member of the union as well
    key = ".".join(place)
    if error["type"] == "extra_forbidden":
        known = keys()
        inside = [name for name in known if name.startswith(f"{place[0]}.")] if len(place) > 1 else known
        return unknown("setting", key, inside or known)
    given = error.get("input")
    if error["type"] == "literal_error":
        choices = re.findall(r"'([^']+)'", error["ctx"]["expected"])
        return unknown(f"{key} =", str(given), choices)
    return SafeclError(f"{key}={given} in {source} is wrong: {error['msg'][0].lower()}{error['msg'][1:]}.")


def keys() -> list[str]:
    """Every key that can be set, dotted."""
    found = []
    for name, field in RunSettings.model_fields.items():
        found.append(name)
        models = list(SETTINGS.values()) if name == "method" else [field.annotation]
        for model in models:
            if isinstance(model, type) and issubclass(model, BaseModel):
                found.extend(f"{name}.{inner}" for inner in model.model_fields)
    return sorted(set(found))
