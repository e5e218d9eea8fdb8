"""The configuration of a run: typed, with presets. Nothing heavy is imported, so a wrong word is
answered at once.
"""

from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import yaml
from pydantic import Field, SerializeAsAny, ValidationError, field_validator

from safecl.atomic import read_json
from safecl.backbone.settings import BackboneSettings
from safecl.configure.layers import (
    TAGS,
    Values,
    apply_variants,
    canonical,
    method_name,
    overlay,
    with_default_kinds,
)
from safecl.configure.sentences import sentence
from safecl.configure.words import flat, nested, parse_words
from safecl.engine.identity import deciding, digest
from safecl.engine.metrics import choices
from safecl.engine.settings import TrainSettings
from safecl.entry_points import Catalog, is_installed
from safecl.errors import SafeclError, UnknownName, unknown
from safecl.lines import slug
from safecl.methods.catalog import method_settings
from safecl.methods.settings.base import MethodSettings
from safecl.settings import Idle, Settings, flatten, of_kind, refuse_idle
from safecl.streams.settings import KINDS, GlyphsSettings, StreamSettings, names, parse_stream

SUFFIXES = (".yaml", ".yml")
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # a sweep resolves hundreds of runs

AnyMethod: TypeAlias = Annotated[MethodSettings, SerializeAsAny(), of_kind("name", method_settings)]


class RunSettings(Settings):
    """Everything that decides what a run computes."""

    preset: str = Field(
        "", description="the preset or file that the settings began with; it decides nothing"
    )
    method: AnyMethod = method_settings()["safe"](name="safe")
    stream: StreamSettings = GlyphsSettings()
    backbone: BackboneSettings = BackboneSettings()
    train: TrainSettings = TrainSettings()
    seed: int = Field(
        0, ge=0, description="of everything random but the class order and the split of the data"
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = Field(
        "auto", description="where to compute; auto: the best"
    )
    precision: Literal["auto", "fp32", "bf16"] = Field(
        "auto", description="auto: bf16 where the hardware has it"
    )

    metrics: tuple[str, ...] | None = Field(
        None,
        description="further numbers by name; those that installed packages bring if not given",
    )

    @field_validator("metrics")
    @classmethod
    def _known(cls, metrics: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for name in metrics or ():
            if name not in choices():
                raise unknown("metric", name, choices())
        return metrics

    def idle(self, key: str, above: str = "") -> Idle | None:
        if key == "train.milestones" and (found := self.train.idle_milestones(self.train.epochs)):
            return found
        return self.method.idle_outside(key) or super().idle(key, above)

    @property
    def pet(self) -> str:
        """The kind of the method's PET; none where it has no PET."""
        return str(getattr(getattr(self.method, "pet", None), "kind", "none"))


def load(
    source: str, words: Sequence[str] = (), values: Mapping[str, Any] | None = None
) -> RunSettings:
    """The settings of a preset or a YAML file, with ``key=value`` words and, over these, nested
    ``values`` on top.

    What is given and means nothing beside the others is refused; a preset may hold it, and so may
    the file of a run.
    """
    settings, base, top = _resolved(source, words, values)
    refuse_idle(settings, top)
    if Path(source).suffix in SUFFIXES and "preset" not in base:
        refuse_idle(settings, base, chosen=flatten(top))
    return settings


def resolve(
    source: str, words: Sequence[str] = (), values: Mapping[str, Any] | None = None
) -> RunSettings:
    """The same for one of many runs, of which not each has a use for all that is given to them
    together.
    """
    return _resolved(source, words, values)[0]


def _resolved(
    source: str, words: Sequence[str], values: Mapping[str, Any] | None
) -> tuple[RunSettings, Values, Values]:
    """The settings, what the source says for them, and what is given on top."""
    base = canonical(read_source(source))
    below = flat(parse_words(words))
    above = nested(values or {})
    for group, tag in TAGS.items():
        names = {group, f"{group}.{tag}"}
        # Where a value chooses the kind, what the words say inside it is of that kind.
        if names & flat(above).keys():
            below = {key: value for key, value in below.items() if key not in names}
    top = overlay(canonical(nested(below)), canonical(above))
    base = apply_variants(base, top)
    together = overlay(base, top)
    name = base.get("preset") or Path(source).stem
    named = {**together, "preset": name if method_name(together) == method_name(base) else ""}
    return validate(named, source), base, top


def validate(values: Values, source: str = "the configuration") -> RunSettings:
    """Typed settings, or one sentence on the first thing that is wrong."""
    values = canonical(values)
    name = method_name(values)
    try:
        values["method"] = with_default_kinds(name, values.get("method", {}))
        if isinstance(values.get("stream"), dict):
            values["stream"] = parse_stream(values["stream"])
        return RunSettings.model_validate(values)
    except ValidationError as error:
        found = sentence(error.errors(), source, name, RunSettings)
        _check_packages(found, source)
        raise found from error
    except UnknownName as error:
        _check_packages(error, source)
        raise


def _check_packages(error: SafeclError, source: str) -> None:
    """Say of a run whose settings are unknown here which packages it was made with, if any."""
    facts = read_json(Path(source).with_name("facts.json")) if source.endswith(SUFFIXES) else None
    missing = [one for one in (facts or {}).get("packages", []) if not is_installed(one)]
    if isinstance(error, UnknownName) and missing:
        raise SafeclError(
            "package.missing", source=source, packages=" and ".join(missing)
        ) from error


def run_name(settings: RunSettings, start: str = "", stream: str = "") -> str:
    """A run's folder, the same for settings that decide the same; ``start``: in place of the
    method's name.
    """
    words = [
        start or settings.method.name,
        stream or settings.stream.title,
        settings.pet,
        f"seed{settings.seed}",
    ]
    return "-".join([*map(slug, words), digest(deciding(settings.model_dump(mode="json")))[:10]])


def shipped(*folder: str) -> dict[str, Traversable]:
    """The YAML files in a folder of this part of the package, by their names."""
    files = resources.files("safecl.experiments").joinpath(*folder).iterdir()
    return dict(
        sorted(
            (file.name.removesuffix(".yaml"), file) for file in files if file.name.endswith(".yaml")
        )
    )


def read_shipped(what: str, name: str, *folder: str) -> Values:
    """What one of those files says; ``what``: the sentence's word for it where there is none of
    this name.
    """
    files = shipped(*folder)
    if name not in files:
        raise unknown(what, name, files)
    return parse_yaml(files[name].read_text(encoding="utf-8"), name)


def _preset(name: str, found: Any) -> Values:
    """Somebody's preset: settings as a YAML file would have them."""
    if not isinstance(found, dict):
        raise PRESETS.misfit(name, "a dict of settings")
    return found


PRESETS = Catalog[Traversable | Values]("presets", {**shipped("presets")}, _preset)


def presets() -> list[str]:
    return [*PRESETS]


def read_source(source: str) -> Values:
    """What a preset or a YAML file says; a method without a preset has its own defaults."""
    path = Path(source)
    if path.suffix in SUFFIXES:
        if not path.is_file():
            raise SafeclError("config.missing", source=source)
        try:
            return parse_yaml(path.read_text(encoding="utf-8"), source)
        except (OSError, UnicodeDecodeError) as error:
            raise SafeclError("config.unreadable", source=source, error=error) from error
    found = PRESETS.get(source)
    if isinstance(found, Mapping):
        return {**found}
    if found is not None:
        return parse_yaml(found.read_text(encoding="utf-8"), source)
    if source in method_settings():
        return {"method": source}
    kind, colon, _ = source.partition(":")
    if (colon and kind in KINDS) or source in names() or path.is_dir():
        stream = f"folder:{source}" if path.is_dir() else source
        raise SafeclError("config.stream-as-preset", source=source, stream=stream)
    raise unknown("preset", source, {*PRESETS, *method_settings()})


def parse_yaml(text: str, source: str) -> Values:
    """The keys and values of a YAML text; ``source``: what the sentence on a wrong one names."""
    try:
        values = yaml.load(text, LOADER) or {}
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        raise SafeclError(
            "config.yaml.invalid",
            source=source,
            where=where,
            reason=getattr(error, "problem", error),
        ) from error
    if not isinstance(values, dict):
        raise SafeclError("config.yaml.no-keys", source=source, name=type(values).__name__)
    return values
