"""No PET: the pre-trained network as it is."""

from timm.models.vision_transformer import VisionTransformer
from torch import nn

from safecl.backbone.view import shared_view
from safecl.pet.settings import NoPetSettings


def attach_none(pet: NoPetSettings, vit: VisionTransformer, seed: int) -> tuple[VisionTransformer, nn.ModuleDict]:
    return shared_view(vit), nn.ModuleDict()
