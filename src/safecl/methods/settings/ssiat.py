"""The choices of SSIAT. The defaults are the paper's."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat

from safecl.methods.settings.base import AlignedSettings
from safecl.pet.settings import AdapterSettings, PetSettings


class SsiatSettings(AlignedSettings):
    title = "SSIAT"
    paper = (
        "Tan et al., Semantically-Shifted Incremental Adapter-Tuning is A Continual ViTransformer,"
        " CVPR 2024"
    )
    kind = "continual"
    keeps = "PET, cosine heads, mean and covariance of each class"

    name: Literal["ssiat"] = "ssiat"
    pet: PetSettings = AdapterSettings()
    scale: PositiveFloat = Field(20.0, description="s: factor on the cosines of the heads")
    margin: NonNegativeFloat = Field(0.0, description="m: margin of CosFace (0.3 on ImageNet-A)")
    drift: PositiveFloat = Field(
        4.0, description="σ: width of the neighbourhood that the drift of a class mean is of"
    )
    paired: bool = Field(
        True, description="drift of the same picture; false: of different ones (released code)"
    )
    spread: PositiveFloat = Field(1e-3, description="added to the diagonal of every covariance")
