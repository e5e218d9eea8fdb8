"""LoRA: a low-rank change of two of the query, key and value projections."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from safecl.pet.settings import LoraSettings


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
        zeros = torch.zeros_like(one)
        return torch.cat([one, zeros, other] if self.projections == "qv" else [zeros, one, other], dim=-1)


class LoraLinear(nn.Module):
    """A frozen linear layer plus its low-rank change."""

    def __init__(self, layer: nn.Linear, lora: LowRank) -> None:
        super().__init__()
        self.layer, self.lora = layer, lora

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x) + self.lora(x)
        return y

    def merged(self, dtype: torch.dtype) -> nn.Module:
        """The layer with the change in its weight."""
        change = self.lora(torch.eye(self.layer.in_features).to(self.lora.down)).T
        weight = self.layer.weight + change.to(self.layer.weight.dtype)
        self.layer.weight = nn.Parameter(weight, requires_grad=False)
        return self.layer


def attach_lora(pet: LoraSettings, block: Any, generator: torch.Generator) -> LowRank:
    """A low-rank change of the qkv projection of a block."""
    qkv = block.attn.qkv
    change = LowRank(qkv.in_features, qkv.out_features, pet, generator)
    block.attn.qkv = LoraLinear(qkv, change)
    return change
