"""Attach any kind of PET to a timm ViT, and merge it into the weights for inference."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from safecl.backbone.view import shared_tree, shared_view
from safecl.pet.adapter import attach_adapter
from safecl.pet.blocks import blocks
from safecl.pet.lora import attach_lora
from safecl.pet.prefix import attach_prefix
from safecl.pet.settings import FullSettings, NoPetSettings, PetSettings, SsfSettings, VptSettings
from safecl.pet.ssf import attach_ssf
from safecl.pet.vpt import attach_vpt
from safecl.randomness import generator

BY_BLOCK: dict[str, Callable[[Any, Any, torch.Generator], nn.Module]] = {
    "adapter": attach_adapter,
    "lora": attach_lora,
    "prefix": attach_prefix,
}


def attach(vit: VisionTransformer, pet: PetSettings, seed: int = 0) -> tuple[VisionTransformer, nn.ModuleDict]:
    """A tuned view of ``vit``, and the modules that hold all that can be trained in it, by place.

    ``vit`` is left as it was. The view has modules of its own and shares the frozen weights of ``vit``, but for full
    fine-tuning, which copies them. ``seed`` fixes the initial values: each module has a generator of its own.
    """
    if isinstance(pet, FullSettings):
        whole = trainable(vit)
        return whole, nn.ModuleDict({"vit": whole})
    view = shared_view(vit)
    if isinstance(pet, SsfSettings):
        modules = attach_ssf(pet, view, seed)
    elif isinstance(pet, VptSettings):
        modules = attach_vpt(pet, view)
    else:
        modules = nn.ModuleDict()
        for i, block in enumerate([] if isinstance(pet, NoPetSettings) else blocks(view)[: pet.blocks]):
            modules[str(i)] = BY_BLOCK[pet.kind](pet, block, generator(seed, "pet", pet.kind, i))
    return view, modules.to(next(vit.parameters()).device)


def trainable(vit: VisionTransformer) -> VisionTransformer:
    """A copy of ``vit`` for full fine-tuning, with weights in float32; see ``Backbone.tokens`` for its precision."""
    view = copy.deepcopy(vit)
    view.fc_norm = nn.Identity()  # behind the pooling, of which the CLS token is no part
    for parameter in view.parameters():
        parameter.data = parameter.data.to(torch.promote_types(parameter.dtype, torch.float32))
        parameter.requires_grad_(True)
    return view


@torch.no_grad()
def merge(view: VisionTransformer) -> VisionTransformer:
    """A copy of ``view`` for inference: SSF and LoRA are merged into its weights, other PETs stay beside them."""
    merged = shared_tree(view)
    merge_inside(merged, next(view.parameters()).dtype)
    return merged


def merge_inside(module: nn.Module, dtype: torch.dtype) -> None:
    """Put the result of ``merged``, given the precision of the network, in the place of every module that has it."""
    for name, child in list(module.named_children()):
        merged = getattr(child, "merged", None)
        if merged is None:
            merge_inside(child, dtype)
        else:
            setattr(module, name, merged(dtype))
