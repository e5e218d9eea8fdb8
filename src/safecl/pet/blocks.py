"""The blocks of a transformer that a PET can be attached to."""

from typing import Any, cast

from timm.layers.attention import Attention as TimmAttention
from timm.models.vision_transformer import Block, VisionTransformer
from torch import nn

from safecl.backbone.families.attention import POSITIONED
from safecl.backbone.layers import Attention
from safecl.errors import SafeclError


def blocks(network: nn.Module) -> list[Any]:
    """The transformer blocks, first to last, as ``Any``: torch types every attribute as ``Tensor |
    Module``.
    """
    return list(cast("Any", network.blocks))


def has_plain_blocks(network: nn.Module) -> bool:
    """Whether they are the pre-norm blocks of timm's ViT."""
    return isinstance(network, VisionTransformer) and all(
        isinstance(block, Block) for block in network.blocks
    )


def positioned(block: Any) -> bool:
    """Whether the attention of a block is one of those that keys and values can be added to."""
    attention = getattr(block, "attn", None)
    return isinstance(attention, POSITIONED) or type(attention) is TimmAttention


def plain_attention(block: Any) -> Attention:
    """The attention of a block as one that takes prefixes and a number of queries."""
    attention = block.attn
    if isinstance(attention, Attention):
        return attention
    if type(attention) is TimmAttention and getattr(attention, "gate", None) is None:
        return Attention(attention)
    kind = type(attention).__name__
    raise SafeclError("pet.attention.other", kind=kind)


def put(network: nn.Module, name: str, module: nn.Module) -> None:
    """Put a module in the place of the one of this name."""
    parent, _, own = name.rpartition(".")
    setattr(network.get_submodule(parent), own, module)
