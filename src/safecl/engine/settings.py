"""How a run trains, unless a method's paper asks for a recipe of its own."""

from typing import ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from safecl.errors import SafeclError
from safecl.settings import Idle, Settings, With


class TrainSettings(Settings):
    """Optimiser, rates and schedule of every phase. ``later_…`` holds for every session but the
    first.
    """

    acts_with: ClassVar = {
        "momentum": (With("optimiser", ("sgd",)),),
        "every": (With("schedule", ("cosine", "quarter_cosine")),),  # milestones are whole epochs
        "later_horizon": (With("schedule", ("cosine",)),),
        "milestones": (With("schedule", ("steps",)),),
        "decay": (With("schedule", ("steps",)), With("milestones")),
    }
    epochs: PositiveInt = Field(20, description="passes over a session's pictures")
    later_epochs: PositiveInt | None = Field(None, description="as epochs if not given")
    batch_size: PositiveInt = Field(48, description="pictures per step, over all processes")
    accumulate: PositiveInt = Field(
        1, description="in how many pieces a batch goes through the network: less memory, more time"
    )
    optimiser: Literal["sgd", "adam", "adamw"] = Field("sgd", description="the update rule")
    lr: PositiveFloat = Field(0.01, description="learning rate at the start of the schedule")
    later_lr: PositiveFloat | None = Field(None, description="as lr if not given")
    momentum: float = Field(0.9, ge=0, lt=1, description="of sgd")
    weight_decay: NonNegativeFloat = Field(5e-4, description="pulls every trained number towards 0")
    later_weight_decay: NonNegativeFloat | None = Field(
        None, description="as weight_decay if not given"
    )
    schedule: Literal["cosine", "constant", "steps", "quarter_cosine"] = Field(
        "cosine", description="how the learning rate falls"
    )
    every: Literal["step", "epoch"] = Field(
        "step", description="how often the learning rate changes"
    )
    later_horizon: PositiveInt | None = Field(
        None, description="epochs over which the later cosine would reach 0"
    )
    milestones: tuple[PositiveInt, ...] = Field(
        (), description="epochs at which it falls, with train.schedule=steps"
    )
    decay: float = Field(0.1, gt=0, lt=1, description="factor on the rate at a milestone")
    clip: PositiveFloat | None = Field(None, description="largest norm of the whole gradient")
    later_clip: PositiveFloat | None = Field(1.0, description="the same in later sessions")
    guard: bool = Field(
        True,
        description=(
            "after tuning that made the features of the session's own pictures worse, tune again at"
            " a tenth and a hundredth of the rate, and then not at all"
        ),
    )
    graphs: bool = Field(True, description="on CUDA, record a step once and replay it")
    save_seconds: PositiveFloat = Field(60.0, description="how often a phase saves its checkpoint")

    def idle_milestones(self, epochs: int) -> Idle | None:
        """Why none of the milestones is reached in ``epochs``, if so."""
        last = max(epochs, self.later_epochs or 0)
        if self.schedule != "steps" or min(self.milestones, default=0) < last:
            return None
        given = f"[{', '.join(map(str, self.milestones))}]"
        error = SafeclError("setting.milestones.never", milestones=given, epochs=last)
        return Idle("train.milestones", "train.epochs", error)

    @model_validator(mode="after")
    def _pieces(self) -> "TrainSettings":
        if self.batch_size % self.accumulate:
            raise ValueError(
                f"train.accumulate={self.accumulate} must divide train.batch_size={self.batch_size}"
            )
        return self
