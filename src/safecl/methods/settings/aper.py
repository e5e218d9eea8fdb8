"""The choices of APER."""

from typing import ClassVar, Literal

from pydantic import Field

from safecl.methods.settings.base import Kind, MethodSettings
from safecl.pet.settings import AdapterSettings, PetSettings


class AperSettings(MethodSettings):
    """Its five variants are kinds of PET: adapter, ssf, vpt_deep, vpt_shallow, full (fine-tuning)."""

    title: ClassVar[str] = "APER"
    paper: ClassVar[str] = (
        "Zhou et al., Revisiting Class-Incremental Learning with Pre-Trained Models: Generalizability and Adaptivity "
        "are All You Need, IJCV 2024 (first called ADaM)"
    )
    kind: ClassVar[Kind] = "first session"
    keeps: ClassVar[str] = "PET, class means of twice the width"
    networks: ClassVar[int] = 2

    name: Literal["aper"] = "aper"
    pet: PetSettings = AdapterSettings()
    scale: float = Field(1.0, gt=0, description="initial σ of the cosine head of session 1")
