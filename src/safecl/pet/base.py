"""What every kind of PET has: its settings, how it is attached to a view, and how it is merged into the weights."""

from abc import abstractmethod
from typing import Any, cast

from timm.models.vision_transformer import Block, VisionTransformer
from torch import nn

from safecl.errors import SafeclError
from safecl.settings import Settings


class Pet(Settings):
    """The settings of one kind of PET; a subclass gives ``kind`` its word or words."""

    kind: str

    @abstractmethod
    def attach(self, vit: VisionTransformer, seed: int) -> tuple[VisionTransformer, nn.ModuleDict]:
        """A view of ``vit`` with the PET in it, and the new modules by place; ``vit`` is not changed.

        Each module has a random generator of its own, named after the kind and its place.
        """

    @staticmethod
    def merge(view: VisionTransformer) -> None:
        """Replace the PET in ``view`` by what is faster and gives the same output, but cannot be trained."""


def blocks(vit: VisionTransformer) -> list[Any]:
    """The transformer blocks, first to last, as ``Any``: torch types every attribute as ``Tensor | Module``."""
    if not all(isinstance(block, Block) for block in vit.blocks):
        kind = type(vit.blocks[0]).__name__
        raise SafeclError(f"A PET needs the plain pre-norm blocks of timm's ViT; this backbone is made of {kind}.")
    return list(cast("Any", vit.blocks))
