"""The configuration of a run: typed, with presets. Nothing heavy is imported, so a wrong word is answered at once."""

from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

import yaml
from pydantic import Field, ValidationError

from safecl.backbone.settings import BackboneSettings
from safecl.configure.layers import TAGS, Values, apply_variants, canonical, method_name, overlay, with_default_kinds
from safecl.configure.sentences import sentence
from safecl.configure.words import flat, nested, parse_words
from safecl.engine.identity import deciding, digest
from safecl.engine.settings import TrainSettings
from safecl.errors import SafeclError, unknown
from safecl.lines import slug
from safecl.methods.catalog import method_settings
from safecl.methods.settings.base import MethodSettings
from safecl.methods.settings.safe import SafeSettings
from safecl.settings import Settings, refuse_idle
from safecl.streams.settings import KINDS, GlyphsSettings, StreamSettings, names, parse_stream

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # a sweep resolves hundreds of runs

if TYPE_CHECKING:
    AnyMethod = MethodSettings
else:
    AnyMethod = Annotated[Union[tuple(method_settings().values())], Field(discriminator="name")]  # noqa: UP007


class RunSettings(Settings):
    """Everything that decides what a run computes."""

    preset: str = Field("", description="the preset or file that the settings began with; it decides nothing")
    method: AnyMethod = SafeSettings()
    stream: StreamSettings = GlyphsSettings()
    backbone: BackboneSettings = BackboneSettings()
    train: TrainSettings = TrainSettings()
    seed: int = Field(0, ge=0, description="of everything random but the class order and the split of the data")
    device: Literal["auto", "cpu", "cuda", "mps"] = Field("auto", description="where to compute; auto: the best")
    precision: Literal["auto", "fp32", "bf16"] = Field("auto", description="auto: bf16 where the hardware has it")

    @property
    def pet(self) -> str:
        """The kind of the method's PET; none where it has no PET."""
        return str(getattr(getattr(self.method, "pet", None), "kind", "none"))


def load(source: str, words: Sequence[str] = (), values: Mapping[str, Any] | None = None) -> RunSettings:
    """The settings of a preset or a YAML file, with ``key=value`` words and, over these, nested ``values`` on top."""
    base, below, above = canonical(read_source(source)), flat(parse_words(words)), nested(values or {})
    for group, tag in TAGS.items():
        names = {group, f"{group}.{tag}"}
        # Where a value chooses the kind, what the words say inside it is of that kind.
        if names & flat(above).keys():
            below = {key: value for key, value in below.items() if key not in names}
    top = overlay(canonical(nested(below)), canonical(above))
    together = overlay(apply_variants(base, top), top)
    name = base.get("preset") or Path(source).stem
    settings = validate({**together, "preset": name if method_name(together) == method_name(base) else ""}, source)
    if not settings.method.trains and "train" in top:
        raise SafeclError(f"{settings.method.title} does not train, so train.{next(iter(top['train']))} means nothing.")
    refuse_idle(settings, canonical(nested(below)))
    return settings


def validate(values: Values, source: str = "the configuration") -> RunSettings:
    """Typed settings, or one sentence on the first thing that is wrong."""
    values, name = canonical(values), method_name(canonical(values))
    values["method"] = with_default_kinds(name, values.get("method", {}))
    if isinstance(values.get("stream"), dict):
        values["stream"] = parse_stream(values["stream"])
    try:
        return RunSettings.model_validate(values)
    except ValidationError as error:
        raise sentence(error.errors(), source, name, RunSettings) from error


def run_name(settings: RunSettings, start: str = "", stream: str = "") -> str:
    """A run's folder, the same for settings that decide the same; ``start``: in place of the method's name."""
    words = [start or settings.method.name, stream or settings.stream.title, settings.pet, f"seed{settings.seed}"]
    return "-".join([*map(slug, words), digest(deciding(settings.model_dump(mode="json")))[:10]])


def shipped(*folder: str) -> dict[str, Traversable]:
    """The YAML files in a folder of this part of the package, by their names."""
    files = resources.files("safecl.experiments").joinpath(*folder).iterdir()
    return dict(sorted((file.name.removesuffix(".yaml"), file) for file in files if file.name.endswith(".yaml")))


def read_shipped(what: str, name: str, *folder: str) -> Values:
    """What one of those files says; ``what``: the sentence's word for it where there is none of this name."""
    files = shipped(*folder)
    if name not in files:
        raise unknown(what, name, files)
    return parse_yaml(files[name].read_text(encoding="utf-8"), name)


def presets() -> list[str]:
    return [*shipped("presets")]


def read_source(source: str) -> Values:
    """What a preset or a YAML file says; a method without a preset has its own defaults."""
    path = Path(source)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise SafeclError(f"The configuration {source} does not exist.")
        try:
            return parse_yaml(path.read_text(encoding="utf-8"), source)
        except (OSError, UnicodeDecodeError) as error:
            raise SafeclError(f"The configuration {source} cannot be read ({error}).") from error
    files = shipped("presets")
    if source in files:
        return read_shipped("preset", source, "presets")
    if source in method_settings():
        return {"method": source}
    kind, colon, _ = source.partition(":")
    if (colon and kind in KINDS) or source in names() or path.is_dir():
        stream = f"folder:{source}" if path.is_dir() else source
        raise SafeclError(f"{source!r} is a stream and no preset; write safecl run safe stream={stream}.")
    raise unknown("preset", source, {*files, *method_settings()})


def parse_yaml(text: str, source: str) -> Values:
    """The keys and values of a YAML text; ``source``: what the sentence on a wrong one names."""
    try:
        values = yaml.load(text, LOADER) or {}
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        raise SafeclError(f"{source} is not valid YAML{where}: {getattr(error, 'problem', error)}.") from error
    if not isinstance(values, dict):
        raise SafeclError(f"{source} must hold keys and values, not a {type(values).__name__}.")
    return values
