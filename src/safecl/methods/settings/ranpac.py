"""The choices of RanPAC. Its ablations are pet=none and ridge.project=false."""

from typing import ClassVar, Literal

from pydantic import Field, PositiveFloat

from safecl.heads.settings import RidgeSettings
from safecl.methods.settings.base import TUNED, MethodSettings
from safecl.pet.settings import NoPetSettings, PetSettings, SsfSettings


class RanpacSettings(MethodSettings):
    title = "RanPAC"
    paper = (
        "McDonnell et al., RanPAC: Random Projections and Pre-trained Models for Continual"
        " Learning, NeurIPS 2023"
    )
    kind = "first session"
    keeps = "PET, Gram statistics and ridge weights"
    tunes = True
    acts_with: ClassVar = {"scale": (TUNED,), "body_rate": (TUNED,)}

    name: Literal["ranpac"] = "ranpac"
    pet: PetSettings = SsfSettings()
    ridge: RidgeSettings = RidgeSettings()
    scale: float = Field(
        10.0,
        gt=0,
        description="initial σ of the cosine head (1 in RanPAC's own code, 10 in SAFE's)",
    )
    body_rate: PositiveFloat = Field(
        1.0, description="learning rate of the PET, as a factor on that of the head"
    )

    likeness: bool = Field(
        True, description="by class means too, tell how much a picture looks like those learned"
    )

    def before_tuning(self) -> MethodSettings:
        return self.model_copy(update={"pet": NoPetSettings()})

    @property
    def floors(self) -> tuple[str, ...]:
        wanted = {"beyond.class_means": self.likeness, "beyond.readings": self.ridge.chooses}
        return tuple(name for name, on in wanted.items() if on)
