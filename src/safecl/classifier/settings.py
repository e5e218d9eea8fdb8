"""The settings of a model: what it is made of, resolved from a few words. Nothing heavy is imported."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from pydantic import Field, PositiveInt, SerializeAsAny, ValidationError, field_validator

from safecl.backbone.settings import BackboneSettings
from safecl.engine.settings import TrainSettings
from safecl.errors import SafeclError, unknown
from safecl.methods.catalog import method_settings
from safecl.methods.settings import MethodSettings
from safecl.pet.settings import PETS
from safecl.settings import Settings

Memory: TypeAlias = Literal["statistics", "features"]
STEPS, MOST, LEAST = 1500, 10, 2  # of a phase in batches of 48 pictures: steps at most; epochs at most and at least


class ModelSettings(Settings):
    """Everything that decides what a model computes. ``train`` holds for every session, but for its epochs."""

    method: SerializeAsAny[MethodSettings]
    backbone: BackboneSettings = BackboneSettings()
    train: TrainSettings = TrainSettings(save_seconds=10)
    epochs: PositiveInt | None = Field(None, description="passes over a session's pictures; chosen by their number")
    seed: int = Field(0, ge=0, description="of everything random")
    memory: Memory = Field("statistics", description="features: also keep the heads' features, a byte a number")
    keep: int = Field(3, ge=0, description="how many sessions can be rolled back")

    @field_validator("method", mode="before")
    @classmethod
    def _method(cls, value: Any) -> Any:
        """The settings class of the method that is named; a bare name, and a bare kind of PET, are short forms."""
        if isinstance(value, MethodSettings):
            return value
        values = {"name": value} if isinstance(value, str) else dict(value)
        name = str(values.get("name", "safe"))
        if name not in method_settings():
            raise unknown("method", name, method_settings())
        kind, pet = method_settings()[name], values.get("pet")
        if pet is not None and "pet" not in kind.model_fields:
            raise SafeclError(f"{kind.title} has no PET, so pet={_kind(pet)} means nothing to it.")
        if isinstance(pet, str):
            values["pet"] = {"kind": pet}
        if pet is not None and _kind(pet) not in PETS:
            raise unknown("PET", _kind(pet), PETS)
        return kind.model_validate(values)

    def for_pictures(self, count: int) -> TrainSettings:
        """How a session of so many pictures is trained: the steps of a phase stay within bounds."""
        given = self.epochs or max(min(MOST, STEPS * 48 // max(count, 1)), LEAST)
        return self.train.model_copy(update={"epochs": given, "later_epochs": given})


def resolve(values: Mapping[str, Any]) -> ModelSettings:
    """Typed settings from nested values, or one sentence on the first thing that is wrong."""
    try:
        return ModelSettings.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise SafeclError(f"There is no setting {key!r} of a model.") from None
        reason = first["msg"].removeprefix("Value error, ").rstrip(".")
        raise SafeclError(f"{key}={first['input']} is wrong: {reason[0].lower()}{reason[1:]}.") from None


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Values by dotted keys as nested ones."""
    values: dict[str, Any] = {}
    for key, value in flat.items():
        *groups, last = key.split(".")
        inside = values
        for group in groups:
            below = inside.setdefault(group, {})
            if not isinstance(below, dict):
                raise SafeclError(f"{key}={value} is wrong: {group} has no settings inside it.")
            inside = below
        inside[last] = value
    return values


def _kind(pet: Any) -> str:
    return str(pet.get("kind", "") if isinstance(pet, Mapping) else getattr(pet, "kind", pet))
