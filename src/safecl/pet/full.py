"""Full fine-tuning: a copy of the whole network, all of it trainable."""

import copy

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from safecl.pet.settings import FullSettings


def attach_full(pet: FullSettings, vit: VisionTransformer, seed: int) -> tuple[VisionTransformer, nn.ModuleDict]:
    """A copy of ``vit`` with weights in float32, as the module ``vit``; it starts as ``vit`` and shares nothing.

    Where the backbone computes in a lower precision, so does the copy, by autocast: see ``tokens``.
    """
    view = copy.deepcopy(vit)
    view.fc_norm = nn.Identity()  # behind the pooling, of which the CLS token is no part
    for parameter in view.parameters():
        parameter.data = parameter.data.to(torch.promote_types(parameter.dtype, torch.float32))
        parameter.requires_grad_(True)
    return view, nn.ModuleDict({"vit": view})
