"""Attach any kind of PET to a timm ViT, and merge it into the weights for inference."""

from collections.abc import Callable
from typing import Any

from timm.models.vision_transformer import VisionTransformer
from torch import nn

from safecl.backbone.view import shared_tree, shared_view
from safecl.pet.adapter import attach_adapter, merge_adapter
from safecl.pet.full import attach_full
from safecl.pet.lora import attach_lora, merge_lora
from safecl.pet.prefix import attach_prefix
from safecl.pet.settings import PetSettings
from safecl.pet.ssf import attach_ssf, merge_ssf
from safecl.pet.vpt import attach_vpt

ATTACH: dict[str, Callable[[Any, VisionTransformer, int], tuple[VisionTransformer, nn.ModuleDict]]] = {
    "adapter": attach_adapter,
    "ssf": attach_ssf,
    "vpt_deep": attach_vpt,
    "vpt_shallow": attach_vpt,
    "lora": attach_lora,
    "prefix": attach_prefix,
    "full": attach_full,
    "none": lambda pet, vit, seed: (shared_view(vit), nn.ModuleDict()),
}


def attach(vit: VisionTransformer, pet: PetSettings, seed: int = 0) -> tuple[VisionTransformer, nn.ModuleDict]:
    """A tuned view of ``vit``, and the modules that hold all that can be trained in it, by place.

    ``vit`` is left as it was. The view has modules of its own and shares the frozen weights of ``vit``, but for full
    fine-tuning, which copies them. ``seed`` fixes the initial values: each module has a generator of its own.
    """
    view, modules = ATTACH[pet.kind](pet, vit, seed)
    return view, modules.to(next(vit.parameters()).device)


def merge(view: VisionTransformer) -> VisionTransformer:
    """A copy of ``view`` for inference: SSF and LoRA are merged into its weights, other PETs stay beside them."""
    merged = shared_tree(view)
    for each in (merge_ssf, merge_lora, merge_adapter):
        each(merged)
    return merged
