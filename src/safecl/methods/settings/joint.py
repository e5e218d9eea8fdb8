"""The choices of joint training: pet=none is the linear probe, pet=full full fine-tuning."""

from typing import Literal

from pydantic import Field, PositiveFloat

from safecl.methods.settings.base import MethodSettings
from safecl.pet.settings import PetSettings, SsfSettings


class JointSettings(MethodSettings):
    title = "Joint training"
    paper = "the upper bound: all sessions at once, as in RanPAC's tables"
    kind = "bound"
    keeps = "PET, head"
    joint = True

    name: Literal["joint"] = "joint"
    pet: PetSettings = SsfSettings()
    scale: PositiveFloat = Field(1.0, description="initial σ of the cosine head")
    body_rate: PositiveFloat = Field(1.0, description="learning rate of the PET, as a factor on that of the head")
