"""Adapter (AdaptFormer, parallel): a small bottleneck beside the MLP of every block."""

import math

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from safecl.pet.blocks import blocks


class Adapter(nn.Module):
    """a = s · (Drop(ReLU(x W_down + b_down)) W_up + b_up); zero at first, so the network starts as the PTM."""

    def __init__(self, width: int, bottleneck: int, scale: float, dropout: float, generator: torch.Generator) -> None:
        super().__init__()
        self.down = nn.Linear(width, bottleneck)
        self.up = nn.Linear(bottleneck, width)
        self.dropout = nn.Dropout(dropout)
        self.scale = scale
        bound = 1 / math.sqrt(width)
        with torch.no_grad():
            self.down.weight.uniform_(-bound, bound, generator=generator)
            for zero in (self.down.bias, self.up.weight, self.up.bias):
                zero.zero_()

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.dropout(torch.relu(self.down(x)))
        up: Tensor = self.up(hidden)
        return self.scale * up


class AdaptedMlp(nn.Module):
    """x ↦ MLP(LN2(x)) + adapter(x): the adapter reads the residual stream before LN2."""

    def __init__(self, norm: nn.Module, mlp: nn.Module, layer_scale: nn.Module, adapter: Adapter) -> None:
        super().__init__()
        self.norm, self.mlp, self.layer_scale, self.adapter = norm, mlp, layer_scale, adapter

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer_scale(self.mlp(self.norm(x)))
        a: Tensor = self.adapter(x)
        return y + a


def attach_adapter(
    vit: VisionTransformer, generator: torch.Generator, bottleneck: int = 64, scale: float = 0.1, dropout: float = 0.1
) -> nn.ModuleDict:
    """Put an adapter beside every MLP of ``vit``; gives the adapters by block."""
    adapters = nn.ModuleDict()
    for i, block in enumerate(blocks(vit)):
        adapters[str(i)] = adapter = Adapter(vit.embed_dim, bottleneck, scale, dropout, generator)
        # The block's own forward stays as it is: norm2 and ls2 move inside, next to the adapter.
        block.mlp = AdaptedMlp(block.norm2, block.mlp, block.ls2, adapter)
        block.norm2, block.ls2 = nn.Identity(), nn.Identity()
    return adapters
