"""The choices of SLCA. The defaults are the paper's."""

from typing import ClassVar, Literal

from pydantic import Field, PositiveFloat

from safecl.methods.settings.base import TUNED, AlignedSettings
from safecl.pet.settings import FullSettings, PetSettings


class SlcaSettings(AlignedSettings):
    title = "SLCA"
    paper = (
        "Zhang et al., SLCA: Slow Learner with Classifier Alignment for Continual Learning, ICCV"
        " 2023"
    )
    kind = "continual"
    keeps = "the whole network, linear heads, mean and covariance of each class"
    acts_with: ClassVar = {"slow_rate": (TUNED,)}

    name: Literal["slca"] = "slca"
    pet: PetSettings = FullSettings()
    slow_rate: PositiveFloat = Field(
        0.01, description="learning rate of the network, as a factor on that of the head"
    )
    temperature: PositiveFloat = Field(
        0.1, description="τ of the logit normalisation (0.05 on Cars)"
    )
