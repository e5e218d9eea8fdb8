"""The choices of MOS. The defaults are the paper's, but for the alignment, which the preset has."""

from typing import ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat

from safecl.methods.settings.base import TUNED, AlignedSettings
from safecl.pet.settings import AdapterSettings, PetSettings


class MosSettings(AlignedSettings):
    title = "MOS"
    paper = (
        "Sun et al., MOS: Model Surgery for Pre-Trained Model-Based Class-Incremental Learning,"
        " AAAI 2025"
    )
    kind = "continual"
    keeps = "a PET for each session, linear head, class means, mean and covariance of each class"
    acts_with: ClassVar = {"pull": (TUNED,)}

    name: Literal["mos"] = "mos"
    pet: PetSettings = AdapterSettings(bottleneck=16)
    pull: float = Field(
        0.1, ge=0, le=1, description="how far a step draws the PET to the mean of earlier ones"
    )
    contrast: NonNegativeFloat = Field(
        0.1, description="weight of the loss that holds features apart"
    )
    head_rate: PositiveFloat = Field(
        0.1, description="learning rate of the head, as a factor on that of the PET"
    )
    diagonal: bool = Field(
        False, description="draw features from the diagonal of the covariances alone (ImageNet-A)"
    )
