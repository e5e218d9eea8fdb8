"""The choices of sequential fine-tuning."""

from typing import ClassVar, Literal

from pydantic import Field

from safecl.methods.settings import Kind, MethodSettings
from safecl.pet.settings import PetSettings, SsfSettings


class FinetuneSettings(MethodSettings):
    """The PET, and the initial σ of the cosine head."""

    title: ClassVar[str] = "Fine-tuning"
    paper: ClassVar[str] = "the lower bound: nothing keeps what was learned before"
    kind: ClassVar[Kind] = "bound"
    algorithm: ClassVar[str] = "Finetune"
    keeps: ClassVar[str] = "PET, head"

    name: Literal["finetune"] = "finetune"
    pet: PetSettings = SsfSettings()
    scale: float = Field(10.0, gt=0, description="initial σ of the cosine head")
