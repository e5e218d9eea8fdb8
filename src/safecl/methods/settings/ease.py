"""The choices of EASE. The defaults are the paper's for CIFAR-100."""

from typing import ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat

from safecl.methods.settings.base import TUNED, MethodSettings
from safecl.pet.settings import AdapterSettings, PetSettings


class EaseSettings(MethodSettings):
    title = "EASE"
    paper = (
        "Zhou et al., Expandable Subspace Ensemble for Pre-Trained Model-Based Class-Incremental"
        " Learning, CVPR 2024"
    )
    kind = "continual"
    keeps = "a PET for each session, class means in every subspace"
    tunes = True
    acts_with: ClassVar = {"scale": (TUNED,)}

    name: Literal["ease"] = "ease"
    pet: PetSettings = AdapterSettings()
    scale: PositiveFloat = Field(
        1.0, description="initial σ of the cosine head that a session is trained with"
    )
    alpha: NonNegativeFloat = Field(
        0.1, description="α: weight of the subspaces of other sessions than a class's own"
    )
    beta: NonNegativeFloat = Field(
        0.0, description="β: weight of the cosine under the bare backbone; 0: left out"
    )
