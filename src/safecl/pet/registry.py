"""Attach a PET to a timm ViT that it does not own."""

from typing import Literal, TypeAlias

import torch
from pydantic import Field
from timm.models.vision_transformer import Block, VisionTransformer
from torch import nn

from safecl.backbone.view import shared_view
from safecl.errors import SafeclError
from safecl.pet.adapter import attach_adapter, merge_adapter
from safecl.pet.lora import attach_lora, merge_lora
from safecl.pet.ssf import attach_ssf, merge_ssf
from safecl.pet.vpt import attach_vpt
from safecl.settings import Settings

Kind: TypeAlias = Literal["adapter", "ssf", "vpt_deep", "vpt_shallow", "lora", "none"]


class PetSettings(Settings):
    """Which PET, and its few numbers; the defaults are those of the paper, but for ``rate``, which is 1 there."""

    kind: Kind = Field("ssf", description="adapter, ssf, vpt_deep, vpt_shallow, lora, or none")
    bottleneck: int = Field(64, gt=0, description="hidden size of the adapter")
    scale: float = Field(0.1, description="fixed factor on the adapter's output")
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout on the adapter's hidden units")
    tokens: int = Field(5, gt=0, description="prompt tokens of VPT")
    rate: float = Field(0.003, gt=0, description="factor on the gradient of prompts")
    rank: int = Field(8, gt=0, description="rank of LoRA")
    alpha: float = Field(8.0, gt=0, description="LoRA's change is scaled by alpha / rank")


def attach(vit: VisionTransformer, pet: PetSettings, seed: int = 0) -> tuple[VisionTransformer, nn.ModuleDict]:
    """A tuned view of ``vit`` and the new modules in it.

    The view has modules of its own but shares every weight with ``vit``, which is left as it was. The new modules
    hold all that can be trained; ``seed`` fixes their initial values.
    """
    view = shared_view(vit)
    if pet.kind == "none":
        return view, nn.ModuleDict()
    if not all(isinstance(block, Block) for block in vit.blocks):
        kind = type(vit.blocks[0]).__name__
        raise SafeclError(f"A PET needs the plain pre-norm blocks of timm's ViT; this backbone is made of {kind}.")
    generator = torch.Generator().manual_seed(seed)
    if pet.kind == "adapter":
        modules = attach_adapter(view, generator, pet.bottleneck, pet.scale, pet.dropout)
    elif pet.kind == "ssf":
        modules = attach_ssf(view, generator)
    elif pet.kind == "lora":
        modules = attach_lora(view, generator, pet.rank, pet.alpha)
    else:
        modules = attach_vpt(view, deep=pet.kind == "vpt_deep", tokens=pet.tokens, rate=pet.rate)
    return view, modules.to(next(vit.parameters()).device)


def merge(view: VisionTransformer) -> VisionTransformer:
    """A copy of ``view`` to be used and no more trained: SSF and LoRA go into its weights, an adapter stays beside."""
    merged = shared_view(view)
    for each in (merge_ssf, merge_lora, merge_adapter):
        each(merged)
    return merged
