"""The blocks of a ViT that a PET can be attached to."""

from typing import Any, cast

from timm.layers.attention import Attention as TimmAttention
from timm.models.vision_transformer import Block, VisionTransformer

from safecl.backbone.layers import Attention
from safecl.errors import SafeclError


def blocks(vit: VisionTransformer) -> list[Any]:
    """The transformer blocks, first to last, as ``Any``: torch types every attribute as ``Tensor | Module``."""
    if not all(isinstance(block, Block) for block in vit.blocks):
        kind = type(vit.blocks[0]).__name__
        raise SafeclError(f"A PET needs the plain pre-norm blocks of timm's ViT; this backbone is made of {kind}.")
    return list(cast("Any", vit.blocks))


def plain_attention(block: Any) -> Attention:
    """The attention of a block as one that takes prefixes and a number of queries."""
    attention = block.attn
    if isinstance(attention, Attention):
        return attention
    if type(attention) is TimmAttention and getattr(attention, "gate", None) is None:
        return Attention(attention)
    kind = type(attention).__name__
    raise SafeclError(f"This PET needs the plain attention of timm's ViT; this backbone has {kind}.")
