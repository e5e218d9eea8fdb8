"""Which family a network is of."""

import inspect
from typing import Any

from timm.models.vision_transformer import VisionTransformer
from torch import nn

from safecl.backbone.families.family import Family
from safecl.backbone.families.sequence import KINDS, Sequence
from safecl.backbone.families.vit import Vit

SIDE = 224  # of a network that does not say


def family_of(network: nn.Module, size: int | None = None) -> Family:
    """The family of a timm network; ``size``: the side of its pictures, its own if not given."""
    size = side(network) if size is None else size
    if isinstance(network, VisionTransformer) and network.cls_token is not None:
        return Vit(network, size)
    return (Sequence if isinstance(network, KINDS) else Family)(network, size)


def made_for_any_size(network: nn.Module) -> bool:
    """Whether a network is told the side of its pictures when it is made."""
    parameters = inspect.signature(type(network).__init__).parameters
    return "img_size" in parameters or "kwargs" in parameters


def side(network: Any) -> int:
    """The side of the pictures that a network was made for."""
    embedding = getattr(network, "patch_embed", None)
    made = getattr(embedding, "img_size", None)
    if made is not None:
        return int(made[0])
    return int((getattr(network, "pretrained_cfg", None) or {}).get("input_size", (3, SIDE))[-1])
