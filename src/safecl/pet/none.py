"""No PET: the pre-trained network as it is."""

from typing import Literal

from timm.models.vision_transformer import VisionTransformer
from torch import nn

from safecl.backbone.view import shared_view
from safecl.pet.base import Pet


class NoPetSettings(Pet):
    """Nothing is trained."""

    kind: Literal["none"] = "none"

    def attach(self, vit: VisionTransformer, seed: int) -> tuple[VisionTransformer, nn.ModuleDict]:
        return shared_view(vit), nn.ModuleDict()
