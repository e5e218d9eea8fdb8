"""The settings of a model, resolved from a few words. Nothing heavy is imported."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, cast

from pydantic import Field, PositiveInt, SerializeAsAny, ValidationError
from pydantic_core import ErrorDetails

from safecl.backbone.settings import BackboneSettings
from safecl.configure.layers import Values, canonical, method_name, with_default_kinds
from safecl.configure.sentences import sentence
from safecl.configure.words import nested
from safecl.engine.settings import TrainSettings
from safecl.errors import SafeclError
from safecl.methods.catalog import method_settings
from safecl.methods.settings.base import MethodSettings
from safecl.settings import Idle, Settings, flatten

Memory: TypeAlias = Literal["statistics", "features"]
Prefer: TypeAlias = Literal["accuracy", "speed"]  # of backbones, where the pictures choose
MAX_STEPS = 1500
MAX_EPOCHS = 5
MIN_EPOCHS = 2  # of a phase in batches of 48 pictures
EPOCHS = (  # of a run; a model has ``epochs``, which may be chosen by the number of pictures
    "train.epochs"
)
TRAIN = TrainSettings(save_seconds=10)


class ModelSettings(Settings):
    """Everything that decides what a model computes.

    ``train`` holds for every session; in place of its ``epochs`` a model has its own, see
    ``together``.
    """

    method: SerializeAsAny[MethodSettings]
    backbone: BackboneSettings = BackboneSettings()
    train: TrainSettings = TRAIN
    epochs: PositiveInt | None = Field(
        None, description="passes over a session's pictures; chosen by their number"
    )
    seed: int = Field(0, ge=0, lt=1 << 63, description="of everything random")
    memory: Memory = Field(
        "statistics", description="features: also keep the heads' features, a byte a number"
    )
    keep: int = Field(
        3, ge=0, description="how many steps (sessions and corrections) can be rolled back"
    )
    thumbnails: bool = Field(
        False, description="keep the typical and the strangest picture of each class, 64 px"
    )

    def idle(self, key: str, above: str = "") -> Idle | None:
        if key == "epochs" and (found := self.method.idle_outside(EPOCHS)):
            return found._replace(key=key, error=found.error.with_fields(key=key))
        most = self.epochs or MAX_EPOCHS
        if key == "train.milestones" and (found := self.train.idle_milestones(most)):
            return found
        return self.method.idle_outside(key) or super().idle(key, above)

    def answering(self, tuned: bool) -> MethodSettings:
        """The settings of the method that answers: if not ``tuned``, of what does so before."""
        return self.method if tuned else self.method.before_tuning() or self.method

    def for_pictures(self, count: int) -> TrainSettings:
        """How a session of so many pictures is trained: the steps of a phase stay within bounds."""
        epochs = self.epochs or max(min(MAX_EPOCHS, MAX_STEPS * 48 // max(count, 1)), MIN_EPOCHS)
        return self.train.model_copy(
            update={"epochs": epochs, "later_epochs": self.train.later_epochs or epochs}
        )


def resolve(values: Mapping[str, Any]) -> ModelSettings:
    """Typed settings from nested values, or one sentence on the first thing that is wrong."""
    given = canonical(values)
    name = method_name(given)
    method = with_default_kinds(name, given.pop("method", {}))
    kind = method_settings()[name]
    try:
        return ModelSettings.model_validate({**given, "method": kind.model_validate(method)})
    except ValidationError as error:
        place = () if error.title == ModelSettings.__name__ else ("method",)
        errors = [{**one, "loc": (*place, *one["loc"])} for one in error.errors()]
        raise sentence(cast("list[ErrorDetails]", errors), "", name, ModelSettings) from error


def together(settings: Mapping[str, Any], parameters: Mapping[str, tuple[str, Any]]) -> Values:
    """The values of ``settings`` by dotted keys as nested ones; refuse what says of one thing two
    different values.

    ``parameters``: by dotted key the name of each parameter that was given, and its value.
    """
    found = canonical(nested(settings))
    said = dict(parameters)
    for name, value in flatten(found).items():
        other, there = said.setdefault("epochs" if name == EPOCHS else name, (name, value))
        if there != value:
            raise SafeclError(
                "setting.contradict", other=other, there=there, name=name, value=value
            )
    train = found.get("train")
    if isinstance(train, Mapping) and "epochs" in train:
        found |= {
            "epochs": train["epochs"],
            "train": {key: train[key] for key in train if key != "epochs"},
        }
    return found
