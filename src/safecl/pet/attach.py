"""Attach any kind of PET to a timm network, and merge it into the weights for inference."""

import copy
from collections.abc import Callable
from typing import Any

import timm.layers
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from safecl.backbone.families.family import Family, shared_copy
from safecl.backbone.families.find import family_of
from safecl.backbone.families.sequence import Sequence
from safecl.backbone.families.survey import survey, with_own_bias
from safecl.backbone.families.vit import Vit
from safecl.backbone.view import shared_tree
from safecl.errors import SafeclError
from safecl.pet import adapter, lora, ssf
from safecl.pet.adapter import attach_adapter
from safecl.pet.blocks import blocks, has_plain_blocks, positioned
from safecl.pet.lora import attach_lora
from safecl.pet.prefix import attach_prefix
from safecl.pet.settings import (
    PETS,
    AdapterSettings,
    BlockPet,
    FullSettings,
    LoraSettings,
    NoPetSettings,
    Pet,
    SsfSettings,
)
from safecl.pet.ssf import attach_ssf
from safecl.pet.vpt import attach_vpt
from safecl.randomness import generator

# Of our kinds; those of other packages have a method for it.
BY_BLOCK: dict[str, Callable[[Any, Any, torch.Generator], nn.Module]] = {
    "adapter": attach_adapter,
    "lora": attach_lora,
    "prefix": attach_prefix,
}
WHOLE: dict[str, Callable[[Any, Any, int], nn.ModuleDict]] = {
    "ssf": attach_ssf,
    "vpt_deep": lambda pet, view, _: attach_vpt(pet, view),
    "vpt_shallow": lambda pet, view, _: attach_vpt(pet, view),
}


def attach(
    network: nn.Module, pet: Pet, seed: int = 0, family: Family | None = None
) -> tuple[Any, nn.ModuleDict]:
    """A tuned view of ``network``, and the modules that hold all that can be trained in it, by
    place.

    ``network`` is left as it was. The view has modules of its own and shares the frozen weights of
    ``network``, but for full fine-tuning, which copies them. ``seed`` fixes the initial values:
    each module has a generator of its own. ``family``: that of the network, where it is known.
    """
    family = family_of(network) if family is None else family
    if isinstance(pet, FullSettings):
        whole = trainable(family)
        return whole, nn.ModuleDict({"vit": whole})
    if isinstance(pet, NoPetSettings):
        return family.view(network), nn.ModuleDict()
    taken = possible(family)
    if pet.kind in PETS and pet.kind not in taken:
        kind = type(network).__name__
        raise SafeclError("pet.network.other", pet=pet.kind, kind=kind, possible=", ".join(taken))
    view = with_own_bias(family.view(network))
    if isinstance(pet, BlockPet):
        modules = _by_block(pet, view, family, seed)
    elif isinstance(pet, SsfSettings) and not _plain(family):
        modules = ssf.attach_everywhere(pet, view, survey(network, family.size), seed)
    elif pet.kind in WHOLE:
        modules = WHOLE[pet.kind](pet, view, seed)
    else:
        modules = pet.attach(view, seed)
    return view, modules.to(next(network.parameters()).device)


def possible(family: Family) -> tuple[str, ...]:
    """The kinds of PET that a network of this family takes."""
    network: Any = family.network
    plain = has_plain_blocks(network)
    found = None if plain else survey(network, family.size)
    refused = set[str]()
    if not isinstance(family, Vit | Sequence):
        refused |= {"vpt_deep", "vpt_shallow", "prefix"}
    elif not plain and not all(map(positioned, network.blocks)):
        refused |= {"prefix"}
    if found is not None and not found.blocks:
        refused |= {"adapter"}
    if found is not None and not lora.places(network, found):
        refused |= {"lora"}
    return tuple(kind for kind in PETS if kind not in refused)


def _by_block(pet: BlockPet, view: Any, family: Family, seed: int) -> nn.ModuleDict:
    """The modules of a PET that changes blocks one by one, by the number of the block."""
    ours = BY_BLOCK.get(pet.kind)
    modules = nn.ModuleDict()
    if not has_plain_blocks(view) and isinstance(pet, AdapterSettings):
        return adapter.attach_beside(pet, view, survey(family.network, family.size), seed)
    if not has_plain_blocks(view) and isinstance(pet, LoraSettings):
        return lora.attach_layers(pet, view, survey(family.network, family.size), seed)
    each = blocks(view) if ours else _any_blocks(view, family)
    for i, block in enumerate(each[: pet.blocks]):
        values = generator(seed, "pet", pet.kind, i)
        modules[str(i)] = ours(pet, block, values) if ours else pet.attach_block(block, values)
    return modules


def _plain(family: Family) -> bool:
    """Whether it is timm's ViT with a CLS token and nothing else."""
    return isinstance(family, Vit) and has_plain_blocks(family.network)


def _any_blocks(view: Any, family: Family) -> list[Any]:
    """The blocks of a network that a PET of somebody else changes."""
    if isinstance(family, Vit | Sequence):
        return list(view.blocks)
    return [view.get_submodule(name) for name in survey(family.network, family.size).blocks]


def trainable(family: Family) -> Any:
    """A copy of the network for full fine-tuning, with weights in float32; see ``Backbone.through``
    for its precision.
    """
    layers: Any = timm.layers
    view = layers.freeze_batch_norm_2d(copy.deepcopy(family.network))
    if isinstance(family, Vit):
        view.fc_norm = nn.Identity()  # behind the pooling, of which the CLS token is no part
    for parameter in view.parameters():
        parameter.data = parameter.data.to(torch.promote_types(parameter.dtype, torch.float32))
        parameter.requires_grad_(True)
    return view


@torch.no_grad()
def merge(view: nn.Module) -> Any:
    """A copy of ``view`` for inference: SSF and LoRA are merged into its weights, other PETs stay
    beside them.
    """
    merged: Any = shared_tree(view) if isinstance(view, VisionTransformer) else shared_copy(view)
    merge_inside(merged, next(view.parameters()).dtype)
    return merged


def merge_inside(module: nn.Module, dtype: torch.dtype) -> None:
    """Put the result of ``merged``, given the precision of the network, in the place of every
    module that has it.
    """
    for name, child in list(module.named_children()):
        merged = getattr(child, "merged", None)
        if merged is None:
            merge_inside(child, dtype)
        else:
            setattr(module, name, merged(dtype))
