"""The choices of sequential fine-tuning."""

from typing import ClassVar, Literal

from pydantic import Field

from safecl.methods.settings.base import Kind, MethodSettings
from safecl.pet.settings import PetSettings, SsfSettings


class FinetuneSettings(MethodSettings):
    """The PET, the head, and the classes that its softmax is over."""

    title: ClassVar[str] = "Fine-tuning"
    paper: ClassVar[str] = "the lower bound: nothing keeps what was learned before"
    kind: ClassVar[Kind] = "bound"
    keeps: ClassVar[str] = "PET, head"

    name: Literal["finetune"] = "finetune"
    pet: PetSettings = SsfSettings()
    head: Literal["cosine", "linear"] = Field("cosine", description="cosine: grown by class means; linear: with a bias")
    softmax: Literal["global", "local"] = Field(
        "global", description="cross-entropy over all classes seen, or over those of the session"
    )
    scale: float = Field(10.0, gt=0, description="initial σ of the cosine head")
