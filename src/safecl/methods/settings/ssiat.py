"""The choices of SSIAT."""

from typing import ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat

from safecl.methods.settings.base import AlignedSettings, Kind
from safecl.pet.settings import AdapterSettings, PetSettings


class SsiatSettings(AlignedSettings):
    """The defaults are the paper's."""

    title: ClassVar[str] = "SSIAT"
    paper: ClassVar[str] = (
        "Tan et al., Semantically-Shifted Incremental Adapter-Tuning is A Continual ViTransformer, CVPR 2024"
    )
    kind: ClassVar[Kind] = "continual"
    keeps: ClassVar[str] = "PET, cosine heads, mean and covariance of each class"
    covariances: ClassVar[bool] = True

    name: Literal["ssiat"] = "ssiat"
    pet: PetSettings = AdapterSettings()
    scale: PositiveFloat = Field(20.0, description="s: factor on the cosines of the heads")
    margin: NonNegativeFloat = Field(0.0, description="m: margin of CosFace (0.3 on ImageNet-A)")
    drift: PositiveFloat = Field(4.0, description="σ: width of the neighbourhood that the drift of a class mean is of")
    paired: bool = Field(
        True,
        description="a drift is that of one picture's features; false: of different pictures, as in the released code",
    )
    spread: PositiveFloat = Field(1e-3, description="added to the diagonal of every covariance")
