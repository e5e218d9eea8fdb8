"""The choices of APER. Its five variants are kinds of PET: adapter, ssf, vpt_deep, vpt_shallow,
full (fine-tuning).
"""

from typing import ClassVar, Literal

from pydantic import Field

from safecl.methods.settings.base import TUNED, MethodSettings
from safecl.methods.settings.simplecil import SimplecilSettings
from safecl.pet.settings import AdapterSettings, PetSettings


class AperSettings(MethodSettings):
    title = "APER"
    paper = (
        "Zhou et al., Revisiting Class-Incremental Learning with Pre-Trained Models, IJCV 2024"
        " (first called ADaM)"
    )
    kind = "first session"
    keeps = "PET, class means of twice the width"
    tunes = True
    acts_with: ClassVar = {"scale": (TUNED,)}

    name: Literal["aper"] = "aper"
    pet: PetSettings = AdapterSettings()
    scale: float = Field(1.0, gt=0, description="initial σ of the cosine head of session 1")

    def before_tuning(self) -> MethodSettings:
        return SimplecilSettings()
