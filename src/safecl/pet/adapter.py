"""Adapter (AdaptFormer, parallel): a small bottleneck beside the MLP of every block."""

import copy
import math

import torch
import torch.nn.functional as F
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
        down, up = self.down, self.up
        hidden = self.dropout(torch.relu(F.linear(x, down.weight.to(x.dtype), down.bias.to(x.dtype))))
        # s is taken into the small matrix, not into all that comes out of it.
        return F.linear(hidden, (self.scale * up.weight).to(x.dtype), (self.scale * up.bias).to(x.dtype))


class AdaptedMlp(nn.Module):
    """x ↦ MLP(LN2(x)) + adapter(x): the adapter reads the residual stream before LN2."""

    def __init__(self, norm: nn.Module, mlp: nn.Module, layer_scale: nn.Module, adapter: nn.Module) -> None:
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


@torch.no_grad()
def merge_adapter(vit: VisionTransformer) -> None:
    """Take the factor of every adapter into its weights, and those into the precision of the network, for good."""
    for mlp in vit.modules():
        if isinstance(mlp, AdaptedMlp) and isinstance(mlp.adapter, Adapter):
            down, up = copy.deepcopy(mlp.adapter.down), copy.deepcopy(mlp.adapter.up)
            for parameter in up.parameters():
                parameter.mul_(mlp.adapter.scale)
            dtype = next(mlp.mlp.parameters()).dtype
            mlp.adapter = nn.Sequential(down, nn.ReLU(), up).to(dtype).requires_grad_(False)
