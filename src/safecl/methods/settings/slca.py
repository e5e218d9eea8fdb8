"""The choices of SLCA."""

from typing import ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from safecl.methods.settings.base import Kind, MethodSettings
from safecl.pet.settings import FullSettings, PetSettings


class SlcaSettings(MethodSettings):
    """The defaults are the paper's."""

    title: ClassVar[str] = "SLCA"
    paper: ClassVar[str] = (
        "Zhang et al., SLCA: Slow Learner with Classifier Alignment for Continual Learning on a Pre-trained Model, "
        "ICCV 2023"
    )
    kind: ClassVar[Kind] = "continual"
    algorithm: ClassVar[str] = "SLCA"
    keeps: ClassVar[str] = "the whole network, linear heads, mean and covariance of each class"

    covariances: ClassVar[bool] = True

    name: Literal["slca"] = "slca"
    pet: PetSettings = FullSettings()
    slow_rate: PositiveFloat = Field(0.01, description="learning rate of the network, as a factor on that of the head")
    align_epochs: PositiveInt = Field(5, description="epochs of classifier alignment after every session but the first")
    align_samples: PositiveInt = Field(256, description="features drawn for each class and epoch, and the batch size")
    align_lr: PositiveFloat = Field(0.01, description="learning rate of the alignment")
    temperature: PositiveFloat = Field(0.1, description="τ of the logit normalisation (0.05 on Cars)")
    spread: PositiveFloat = Field(1e-4, description="added to the diagonal of every covariance")
