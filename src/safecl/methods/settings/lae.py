"""The choices of LAE."""

from typing import ClassVar, Literal

from pydantic import Field

from safecl.methods.settings.base import Kind, MethodSettings
from safecl.pet.settings import AdapterSettings, PetSettings


class LaeSettings(MethodSettings):
    """The defaults are the paper's, with its adapter; its LoRA and prefix are variants of the preset."""

    title: ClassVar[str] = "LAE"
    paper: ClassVar[str] = (
        "Gao et al., A Unified Continual Learning Framework with General Parameter-Efficient Tuning, ICCV 2023"
    )
    kind: ClassVar[Kind] = "continual"
    keeps: ClassVar[str] = "online and offline PET, linear heads"
    networks: ClassVar[int] = 2

    name: Literal["lae"] = "lae"
    pet: PetSettings = AdapterSettings(
        bottleneck=5, scale=1.0, learn_scale=True, dropout=0.0, activation="gelu", place="attention", blocks=5
    )
    decay: float = Field(0.9999, ge=0, lt=1, description="of the moving average that the offline PET is, a step")
    frozen: float = Field(
        0.6, ge=0, lt=1, description="part of the epochs of later sessions in which the head alone is trained"
    )
