"""The choices of joint training."""

from typing import ClassVar, Literal

from pydantic import Field, PositiveFloat

from safecl.methods.settings.base import Kind, MethodSettings
from safecl.pet.settings import PetSettings, SsfSettings


class JointSettings(MethodSettings):
    """The PET says what is trained beside the head: ``none`` is the linear probe, ``full`` full fine-tuning."""

    title: ClassVar[str] = "Joint training"
    paper: ClassVar[str] = "the upper bound: all sessions at once, as in RanPAC's tables"
    kind: ClassVar[Kind] = "bound"
    keeps: ClassVar[str] = "PET, head"
    joint: ClassVar[bool] = True

    name: Literal["joint"] = "joint"
    pet: PetSettings = SsfSettings()
    scale: PositiveFloat = Field(1.0, description="initial σ of the cosine head")
    body_rate: PositiveFloat = Field(1.0, description="learning rate of the PET, as a factor on that of the head")
