"""The settings of a model, resolved from a few words. Nothing heavy is imported."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, cast

from pydantic import Field, PositiveInt, SerializeAsAny, ValidationError
from pydantic_core import ErrorDetails

from safecl.backbone.settings import BackboneSettings
from safecl.configure.layers import canonical, method_name, with_default_kinds
from safecl.configure.sentences import sentence
from safecl.engine.settings import TrainSettings
from safecl.methods.catalog import method_settings
from safecl.methods.settings.base import MethodSettings
from safecl.settings import Settings

Memory: TypeAlias = Literal["statistics", "features"]
MAX_STEPS, MAX_EPOCHS, MIN_EPOCHS = 1500, 5, 2  # of a phase in batches of 48 pictures


class ModelSettings(Settings):
    """Everything that decides what a model computes. ``train`` holds for every session, but for its epochs."""

    method: SerializeAsAny[MethodSettings]
    backbone: BackboneSettings = BackboneSettings()
    train: TrainSettings = TrainSettings(save_seconds=10)
    epochs: PositiveInt | None = Field(None, description="passes over a session's pictures; chosen by their number")
    seed: int = Field(0, ge=0, lt=1 << 63, description="of everything random")
    memory: Memory = Field("statistics", description="features: also keep the heads' features, a byte a number")
    keep: int = Field(3, ge=0, description="how many steps (sessions and corrections) can be rolled back")
    thumbnails: bool = Field(False, description="keep the typical and the strangest picture of each class, 64 px")

    def for_pictures(self, count: int) -> TrainSettings:
        """How a session of so many pictures is trained: the steps of a phase stay within bounds."""
        given = self.epochs or max(min(MAX_EPOCHS, MAX_STEPS * 48 // max(count, 1)), MIN_EPOCHS)
        return self.train.model_copy(update={"epochs": given, "later_epochs": given})


def resolve(values: Mapping[str, Any]) -> ModelSettings:
    """Typed settings from nested values, or one sentence on the first thing that is wrong."""
    given = canonical(values)
    name = method_name(given)
    method, kind = with_default_kinds(name, given.pop("method", {})), method_settings()[name]
    try:
        return ModelSettings.model_validate({**given, "method": kind.model_validate(method)})
    except ValidationError as error:
        place = () if error.title == ModelSettings.__name__ else ("method", name)
        errors = [{**one, "loc": (*place, *one["loc"])} for one in error.errors()]
        raise sentence(cast("list[ErrorDetails]", errors), "", name, ModelSettings) from error
