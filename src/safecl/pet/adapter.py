"""Adapter (AdaptFormer, parallel): a small bottleneck beside the MLP of every block."""

import copy
import math

import torch
import torch.nn.functional as F
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.nn.utils import skip_init

from safecl.backbone.view import shared_view
from safecl.pet.blocks import blocks
from safecl.pet.settings import AdapterSettings
from safecl.randomness import generator


class Adapter(nn.Module):
    """a = s · (Drop(ReLU(x W_down + b_down)) W_up + b_up); W_up starts at 0: the network starts as the PTM."""

    def __init__(self, width: int, bottleneck: int, scale: float, dropout: float, generator: torch.Generator) -> None:
        super().__init__()
        # nn.Linear's own initial values come from the global generator, which is not for a library to move.
        self.down: nn.Linear = skip_init(nn.Linear, width, bottleneck)  # type: ignore[no-untyped-call]
        self.up: nn.Linear = skip_init(nn.Linear, bottleneck, width)  # type: ignore[no-untyped-call]
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
        # s multiplies the weights, which are fewer than the activations.
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


def attach_adapter(pet: AdapterSettings, vit: VisionTransformer, seed: int) -> tuple[VisionTransformer, nn.ModuleDict]:
    """An adapter beside every MLP, by block."""
    view, adapters = shared_view(vit), nn.ModuleDict()
    for i, block in enumerate(blocks(view)):
        own = generator(seed, "pet", pet.kind, i)
        adapters[str(i)] = adapter = Adapter(view.embed_dim, pet.bottleneck, pet.scale, pet.dropout, own)
        # Block.forward stays timm's: norm2 and ls2 move inside, next to the adapter.
        block.mlp = AdaptedMlp(block.norm2, block.mlp, block.ls2, adapter)
        block.norm2, block.ls2 = nn.Identity(), nn.Identity()
    return view, adapters


@torch.no_grad()
def merge_adapter(view: VisionTransformer) -> None:
    """Multiply the factor into the weights of every adapter and round these to the precision of the network."""
    for mlp in view.modules():
        if isinstance(mlp, AdaptedMlp) and isinstance(mlp.adapter, Adapter):
            down, up = copy.deepcopy(mlp.adapter.down), copy.deepcopy(mlp.adapter.up)
            for parameter in up.parameters():
                parameter.mul_(mlp.adapter.scale)
            dtype = next(mlp.mlp.parameters()).dtype
            mlp.adapter = nn.Sequential(down, nn.ReLU(), up).to(dtype).requires_grad_(False)
