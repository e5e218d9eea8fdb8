"""The choices of LAE. The defaults are the paper's, with its adapter; LoRA and prefix are variants
of the preset.
"""

from typing import ClassVar, Literal

from pydantic import Field

from safecl.methods.settings.base import TUNED, MethodSettings
from safecl.pet.settings import AdapterSettings, PetSettings


class LaeSettings(MethodSettings):
    title = "LAE"
    paper = (
        "Gao et al., A Unified Continual Learning Framework with General Parameter-Efficient"
        " Tuning, ICCV 2023"
    )
    kind = "continual"
    keeps = "online and offline PET, linear heads"
    acts_with: ClassVar = {"decay": (TUNED,)}

    name: Literal["lae"] = "lae"
    pet: PetSettings = AdapterSettings(
        bottleneck=5,
        scale=1.0,
        learn_scale=True,
        dropout=0.0,
        activation="gelu",
        place="attention",
        blocks=5,
    )
    decay: float = Field(
        0.9999, ge=0, lt=1, description="of the moving average that the offline PET is, a step"
    )
    frozen: float = Field(
        0.6, ge=0, lt=1, description="share of later sessions' epochs that train the head alone"
    )
