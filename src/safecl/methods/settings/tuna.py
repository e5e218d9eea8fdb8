"""The choices of TUNA. The defaults are the paper's for CIFAR-100, but for the alignment, which the
preset has.
"""

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat

from safecl.methods.settings.base import AlignedSettings
from safecl.pet.settings import AdapterSettings, PetSettings


class TunaSettings(AlignedSettings):
    title = "TUNA"
    paper = (
        "Wang et al., Integrating Task-Specific and Universal Adapters for Pre-Trained Model-based"
        " CIL, ICCV 2025"
    )
    kind = "continual"
    keeps = "a PET for each session and one more, cosine heads, mean and covariance of each class"

    name: Literal["tuna"] = "tuna"
    pet: PetSettings = AdapterSettings(bottleneck=16)
    scale: PositiveFloat = Field(20.0, description="s: factor on the cosines of the heads")
    margin: NonNegativeFloat = Field(0.0, description="m: margin of CosFace (0.3 on ImageNet-A)")
    universal: Literal["fused", "newest"] = Field(
        "fused", description="second PET: of all, or the latest (released)"
    )
