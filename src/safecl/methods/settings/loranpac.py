"""The choices of LoRanPAC. The defaults are the paper's."""

from typing import ClassVar, Literal

from pydantic import Field, PositiveInt

from safecl.methods.settings.base import TUNED, MethodSettings
from safecl.pet.settings import AdapterSettings, PetSettings


class LoranpacSettings(MethodSettings):
    title = "LoRanPAC"
    paper = (
        "Peng et al., LoRanPAC: Low-Rank Random Features and Pre-Trained Models for Continual"
        " Learning, ICLR 2025"
    )
    kind = "first session"
    keeps = "PET, sums and at most rank singular vectors of random features, weights"
    tunes = True
    acts_with: ClassVar = {"scale": (TUNED,)}

    name: Literal["loranpac"] = "loranpac"
    pet: PetSettings = AdapterSettings()
    scale: float = Field(1.0, gt=0, description="initial σ of the cosine head of session 1")
    size: PositiveInt = Field(100_000, description="E, the number of random features")
    rank: PositiveInt = Field(
        10_000, description="R: singular vectors kept, at most (20000 on OmniBenchmark)"
    )
    cut: float = Field(
        0.25, ge=0, lt=1, description="ρ: share of the pictures seen for which no vector is kept"
    )
