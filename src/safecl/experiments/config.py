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
from safecl.methods.safe_settings import SafeSettings
from safecl.pet import PetSettings, SsfSettings
from safecl.settings import Settings

ALIASES = {"default": "safe"}
SHORT = {"method": "name", "stream": "name", "backbone": "name", "pet": "kind"}  # what a bare word means to a group


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
    held_out: float | None = Field(None, ge=0, lt=1, description="part of each session kept for validation")
    order: tuple[str | int, ...] | None = Field(None, description="the classes in the order wanted")
    split_seed: int | None = Field(None, ge=0, description="own pictures without a test folder: which are drawn")
    test_fraction: float | None = Field(None, ge=0, lt=1, description="own pictures without a test folder: how many")
    unreadable: Literal["refuse", "skip"] | None = Field(None, description="own pictures that cannot be read")
    duplicates: Literal["refuse", "allow"] | None = Field(None, description="one picture in two classes")
    domains: tuple[str, ...] | None = Field(None, description="the domains in the order wanted")
    image: str | None = Field(None, description="hf: the column of pictures")
    label: str | None = Field(None, description="hf: the column of labels")
    margin: float | None = Field(None, ge=1, description="resized side over input side before the central crop")
    scale: tuple[float, float] | None = Field(None, description="smallest and largest area of a random crop")
    ratio: tuple[float, float] | None = Field(None, description="narrowest and widest aspect of a random crop")
    flip: float | None = Field(None, ge=0, le=1, description="how often a picture is mirrored")
    cache: bool | str | None = Field(None, description="keep decoded pictures on disk: on, off, or a folder")

    def options(self) -> dict[str, Any]:
        """What was given, but for the name."""
        return {key: value for key, value in self.model_dump().items() if key != "name" and value is not None}


class RunSettings(Settings):
    """Everything that decides what a run computes."""

    method: MethodSettings = SafeSettings()
    stream: StreamSettings = StreamSettings()
    backbone: BackboneSettings = BackboneSettings()
    pet: PetSettings = SsfSettings()
    ridge: RidgeSettings = RidgeSettings()
    train: TrainSettings = TrainSettings()
    seed: int = Field(0, ge=0)
    device: str = Field("auto", description="auto, cpu, cuda or mps")
    precision: Literal["auto", "fp32", "bf16"] = "auto"

    @field_validator(*SHORT, mode="before")
    @classmethod
    def _short(cls, value: Any, info: Any) -> Any:
        return short_form(info.field_name, value)


def short_form(group: str, value: Any) -> Any:
    """``pet: ssf`` is short for ``pet: {kind: ssf}``, and the like."""
    if group not in SHORT or not isinstance(value, str):
        return value
    if group == "backbone" and value.endswith(SUFFIXES):
        return {"weights": value}
    return {SHORT[group]: value}


def load(source: str, overrides: list[str]) -> RunSettings:
    """The settings of a preset or a YAML file, with ``key=value`` words on top."""
    values = _read(source)
    # A whole group before what stands inside it: "stream.classes=9 stream=glyphs" means both, in either order.
    for word in sorted(overrides, key=lambda word: "." in word.partition("=")[0]):
        _override(values, word)
    return validate(values, source)


def validate(values: dict[str, Any], source: str = "the configuration") -> RunSettings:
    """Typed settings, or one sentence on the first thing that is wrong."""
    method = values.get("method")
    name = method.get("name", "safe") if isinstance(method, dict) else method
    if name is not None and str(name) not in SETTINGS:
        raise unknown("method", str(name), SETTINGS)
    if isinstance(method, dict):
        values = {**values, "method": {"name": "safe", **method}}
    try:
        return RunSettings.model_validate(values)
    except ValidationError as error:
        raise _sentence(error.errors(), source, str(name or "safe")) from error


def presets() -> list[str]:
    """Names of the presets that ship with the package."""
    folder = resources.files("safecl.experiments") / "presets"
    return sorted(file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml"))


def source_text(source: str) -> str:
    """A preset or a YAML file as it is written."""
    path = Path(source)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise SafeclError(f"The configuration {source} does not exist.")
        try:
            return path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise SafeclError(f"The configuration {source} cannot be read ({error}).") from error
    name = ALIASES.get(source, source)
    if name not in presets():
        raise unknown("preset", source, [*presets(), *ALIASES])
    return (resources.files("safecl.experiments") / "presets" / f"{name}.yaml").read_text()


def _read(source: str) -> dict[str, Any]:
    try:
        values = yaml.safe_load(source_text(source)) or {}
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        raise SafeclError(f"{source} is not valid YAML{where}: {getattr(error, 'problem', error)}.") from error
    if not isinstance(values, dict):
        raise SafeclError(f"{source} must hold keys and values, not a {type(values).__name__}.")
    return values


def _override(values: dict[str, Any], word: str) -> None:
    """Set one ``key=value``; a dotted key goes into a group, a bare group name takes its short form."""
    key, equals, text = word.partition("=")
    if not equals or not key:
        raise SafeclError(f"{word!r} is not of the form key=value, for example seed=1 or train.epochs=5.")
    group, *rest = key.split(".")
    try:
        value = text if re.match(r"^\w+:", text) else yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SafeclError(f"The value in {word!r} cannot be read; put quotes around it.") from error
    if not rest:
        old, new = values.get(group), short_form(group, value)
        values[group] = old | new if group == "pet" and isinstance(old, dict) and isinstance(new, dict) else new
        return
    inside = short_form(group, values.get(group) or {})
    if not isinstance(inside, dict):
        raise SafeclError(f"{group!r} has no settings inside it, so {key!r} means nothing.")
    values[group] = {**inside, ".".join(rest): value}


def _sentence(errors: list[ErrorDetails], source: str, method: str) -> SafeclError:
    """The first pydantic error in the user's words; ``method``: whose settings are meant."""
    error, numbers = errors[0], False
    if error["type"] != "literal_error" and isinstance(error.get("input"), str):
        # Where a number or a word may stand, pydantic complains of both; the complaint on words helps more.
        words = [e for e in errors if e["type"] == "literal_error" and e["loc"][:-1] == error["loc"][:-1]]
        error, numbers = (words[0], True) if words else (error, False)
    place = [str(part) for part in error["loc"]]
    if len(place) > 1 and place[0] == "method":
        place = [place[0], *place[2:]]  # pydantic names the member of the union as well
    known, extra = keys(method), error["type"] == "extra_forbidden"
    if not extra and ".".join(place[:-1]) in known and ".".join(place) not in known:
        place.pop()  # a position in a list, or a member of a union
    key, given = ".".join(place), error.get("input")
    if extra:
        inside = [name for name in known if name.startswith(f"{place[0]}.")] if len(place) > 1 else known
        nearest = unknown("setting", key, inside or known)
        listed = len(inside or known) <= 20 or "did you mean" in str(nearest)
        return nearest if listed else SafeclError(f"There is no setting {key!r}; safecl info --keys lists them all.")
    if error["type"] == "literal_error":
        choices = re.findall(r"'([^']+)'", error["ctx"]["expected"])
        return unknown(f"{key} =", str(given), [*choices, "a number"] if numbers else choices)
    wrong = f"{key}={given}{f' in {source}' if source.endswith(('.yaml', '.yml')) else ''} is wrong"
    if error["type"] in ("model_type", "model_attributes_type"):
        inner = next((name for name in known if name.startswith(f"{key}.")), f"{key}.…")
        return SafeclError(f"{wrong}: {key} is a group; set one of its keys, like {inner}=….")
    return SafeclError(f"{wrong}: {error['msg'][0].lower()}{error['msg'][1:]}.")


def keys(method: str | None = None) -> list[str]:
    """Every key that can be set, dotted; of one ``method`` or of all."""
    found = []
    for name, field in RunSettings.model_fields.items():
        found.append(name)
        models: list[Any] = [field.annotation]
        if name == "method":
            models = [settings for key, settings in SETTINGS.items() if method in (None, key)]
        for model in models:
            if isinstance(model, type) and issubclass(model, BaseModel):
                found.extend(f"{name}.{inner}" for inner in model.model_fields)
    return sorted(set(found))
