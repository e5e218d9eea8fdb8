"""The kinds of PET, and one function to attach any of them to a timm ViT."""

from typing import Annotated, Any, TypeAlias, cast, get_args

from pydantic import Field
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from safecl.backbone.view import shared_tree
from safecl.errors import unknown
from safecl.pet.adapter import AdapterSettings
from safecl.pet.base import Pet
from safecl.pet.full import FullSettings
from safecl.pet.lora import LoraSettings
from safecl.pet.none import NoPetSettings
from safecl.pet.ssf import SsfSettings
from safecl.pet.vpt import VptSettings

PetSettings: TypeAlias = Annotated[
    AdapterSettings | SsfSettings | VptSettings | LoraSettings | FullSettings | NoPetSettings,
    Field(discriminator="kind"),
]
PETS: dict[str, type[Pet]] = {
    kind: settings
    for settings in get_args(get_args(PetSettings)[0])
    for kind in get_args(settings.model_fields["kind"].annotation)
}


def pet_settings(kind: str, **options: Any) -> PetSettings:
    """The settings of one kind of PET: ``pet_settings("adapter", bottleneck=4)``."""
    if kind not in PETS:
        raise unknown("PET", kind, PETS)
    return cast("PetSettings", PETS[kind](kind=kind, **options))


def attach(vit: VisionTransformer, pet: Pet, seed: int = 0) -> tuple[VisionTransformer, nn.ModuleDict]:
    """A tuned view of ``vit``, and the modules that hold all that can be trained in it.

    ``vit`` is left as it was. The view has modules of its own and shares the frozen weights of ``vit``, but for full
    fine-tuning, which copies them. ``seed`` fixes the initial values.
    """
    view, modules = pet.attach(vit, seed)
    return view, modules.to(next(vit.parameters()).device)


def merge(view: VisionTransformer) -> VisionTransformer:
    """A copy of ``view`` for inference: SSF and LoRA are merged into its weights, other PETs stay beside them."""
    merged = shared_tree(view)
    for settings in dict.fromkeys(PETS.values()):
        settings.merge(merged)
    return merged
