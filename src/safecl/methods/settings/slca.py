"""The choices of SLCA."""

from typing import ClassVar, Literal

from pydantic import Field, PositiveFloat

from safecl.methods.settings.base import AlignedSettings, Kind
from safecl.pet.settings import FullSettings, PetSettings


class SlcaSettings(AlignedSettings):
    """The defaults are the paper's."""

    title: ClassVar[str] = "SLCA"
    paper: ClassVar[str] = (
        "Zhang et al., SLCA: Slow Learner with Classifier Alignment for Continual Learning on a Pre-trained Model, "
        "ICCV 2023"
    )
    kind: ClassVar[Kind] = "continual"
    keeps: ClassVar[str] = "the whole network, linear heads, mean and covariance of each class"
    covariances: ClassVar[bool] = True

    name: Literal["slca"] = "slca"
    pet: PetSettings = FullSettings()
    slow_rate: PositiveFloat = Field(0.01, description="learning rate of the network, as a factor on that of the head")
    temperature: PositiveFloat = Field(0.1, description="τ of the logit normalisation (0.05 on Cars)")
