"""LoRA: a low-rank change of two of the query, key and value projections."""

import math

import torch
import torch.nn.functional as F
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from safecl.backbone.view import shared_view
from safecl.pet.blocks import blocks
from safecl.pet.settings import LoraSettings
from safecl.randomness import generator


class LowRank(nn.Module):
    """x ↦ s B A x for two of query, key and value, 0 for the third; s = α/r, and B starts at 0."""

    def __init__(self, width: int, out: int, pet: LoraSettings, generator: torch.Generator) -> None:
        super().__init__()
        bound = 1 / math.sqrt(width)
        self.down = nn.Parameter(torch.empty(2 * pet.rank, width).uniform_(-bound, bound, generator=generator))
        self.up = nn.Parameter(torch.zeros(2, out // 3, pet.rank))
        scale = torch.full((2, 1, 1), pet.alpha / pet.rank)
        self.scale: float | nn.Parameter = nn.Parameter(scale) if pet.learn_scale else pet.alpha / pet.rank
        self.projections = pet.projections

    def forward(self, x: Tensor) -> Tensor:
        parts = F.linear(x, self.down.to(x.dtype)).chunk(2, dim=-1)
        ups = (self.scale * self.up).to(x.dtype)
        one, other = (F.linear(part, up) for part, up in zip(parts, ups, strict=True))
        return self._placed(one, other, dim=-1)

    def matrix(self) -> Tensor:
        """The change of the weight matrix: (3·d_attn, d)."""
        one, other = (self.scale * self.up) @ self.down.reshape(2, -1, self.down.shape[1])
        return self._placed(one, other, dim=0)

    def _placed(self, one: Tensor, other: Tensor, dim: int) -> Tensor:
        """The two changes where the qkv projection has them, with zeros for the third."""
        zeros = torch.zeros_like(one)
        return torch.cat([one, zeros, other] if self.projections == "qv" else [zeros, one, other], dim=dim)


class LoraLinear(nn.Module):
    """A frozen linear layer plus its low-rank change."""

    def __init__(self, layer: nn.Linear, lora: LowRank) -> None:
        super().__init__()
        self.layer, self.lora = layer, lora

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        change: Tensor = self.lora(x)
        return y + change


def attach_lora(pet: LoraSettings, vit: VisionTransformer, seed: int) -> tuple[VisionTransformer, nn.ModuleDict]:
    """A low-rank change of every qkv projection, by block."""
    view, lora = shared_view(vit), nn.ModuleDict()
    for i, block in enumerate(blocks(view)[: pet.blocks]):
        qkv, own = block.attn.qkv, generator(seed, "pet", pet.kind, i)
        lora[str(i)] = change = LowRank(qkv.in_features, qkv.out_features, pet, own)
        block.attn.qkv = LoraLinear(qkv, change)
    return view, lora


@torch.no_grad()
def merge_lora(view: VisionTransformer) -> None:
    """Add every low-rank change to the weight it belongs to; the output stays the same."""
    for owner in list(view.modules()):
        for name, child in list(owner.named_children()):
            if isinstance(child, LoraLinear):
                merged = child.layer
                weight = merged.weight + child.lora.matrix().to(merged.weight.dtype)
                merged.weight = nn.Parameter(weight, requires_grad=False)
                setattr(owner, name, merged)
