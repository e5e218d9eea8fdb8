"""The choices of sequential fine-tuning: the PET, the head, and the classes that its softmax is
over.
"""

from typing import ClassVar, Literal

from pydantic import Field

from safecl.methods.settings.base import MethodSettings
from safecl.pet.settings import PetSettings, SsfSettings
from safecl.settings import With


class FinetuneSettings(MethodSettings):
    title = "Fine-tuning"
    paper = "the lower bound: nothing keeps what was learned before"
    kind = "bound"
    keeps = "PET, head"
    acts_with: ClassVar = {"scale": (With("head", ("cosine",)),)}

    name: Literal["finetune"] = "finetune"
    pet: PetSettings = SsfSettings()
    head: Literal["cosine", "linear"] = Field(
        "cosine", description="cosine: grown by class means; linear: with a bias"
    )
    softmax: Literal["global", "local"] = Field(
        "global", description="over all classes seen, or the session's"
    )
    scale: float = Field(10.0, gt=0, description="initial σ of the cosine head")
