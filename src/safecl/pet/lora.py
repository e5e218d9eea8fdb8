"""LoRA: a low-rank change of the query and value projections."""

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
    """x ↦ (α/r) B A x for the query and the value part, 0 for the key part; B starts at 0."""

    def __init__(self, width: int, out: int, rank: int, alpha: float, generator: torch.Generator) -> None:
        super().__init__()
        bound = 1 / math.sqrt(width)
        self.down = nn.Parameter(torch.empty(2 * rank, width).uniform_(-bound, bound, generator=generator))
        self.up_query = nn.Parameter(torch.zeros(out // 3, rank))
        self.up_value = nn.Parameter(torch.zeros(out // 3, rank))
        self.factor = alpha / rank

    def forward(self, x: Tensor) -> Tensor:
        query, value = F.linear(x, self.down.to(x.dtype)).chunk(2, dim=-1)
        up_query, up_value = ((self.factor * up).to(x.dtype) for up in (self.up_query, self.up_value))
        q, v = F.linear(query, up_query), F.linear(value, up_value)
        return torch.cat([q, torch.zeros_like(q), v], dim=-1)

    def matrix(self) -> Tensor:
        """The change of the weight matrix: (3·d_attn, d)."""
        query, value = self.down.chunk(2)
        q = self.up_query @ query
        return self.factor * torch.cat([q, torch.zeros_like(q), self.up_value @ value])


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
    for i, block in enumerate(blocks(view)):
        qkv, own = block.attn.qkv, generator(seed, "pet", pet.kind, i)
        lora[str(i)] = change = LowRank(qkv.in_features, qkv.out_features, pet.rank, pet.alpha, own)
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
