"""The choices of RanPAC."""

from typing import ClassVar, Literal

from pydantic import Field

from safecl.heads.settings import RidgeSettings
from safecl.methods.settings.base import Kind, MethodSettings
from safecl.pet.settings import PetSettings, SsfSettings


class RanpacSettings(MethodSettings):
    """The PET, the ridge head, and the initial σ. Its ablations are ``pet=none`` and ``ridge.project=false``."""

    title: ClassVar[str] = "RanPAC"
    paper: ClassVar[str] = (
        "McDonnell et al., RanPAC: Random Projections and Pre-trained Models for Continual Learning, NeurIPS 2023"
    )
    kind: ClassVar[Kind] = "first session"
    keeps: ClassVar[str] = "PET, Gram statistics and ridge weights"

    name: Literal["ranpac"] = "ranpac"
    pet: PetSettings = SsfSettings()
    ridge: RidgeSettings = RidgeSettings()
    scale: float = Field(10.0, gt=0, description="initial σ of the cosine head (1 in RanPAC's own code, 10 in SAFE's)")
