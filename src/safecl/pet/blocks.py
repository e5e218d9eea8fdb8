"""timm's blocks without torch's ``Tensor | Module`` for every attribute."""

from typing import Any, cast

from timm.models.vision_transformer import VisionTransformer


def blocks(vit: VisionTransformer) -> list[Any]:
    """The transformer blocks, first to last."""
    return list(cast("Any", vit.blocks))
