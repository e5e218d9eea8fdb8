"""LoRA: a low-rank change of two of the query, key and value projections; in blocks without
attention, of every linear and convolution layer.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from timm.layers.conv2d_same import Conv2dSame
from timm.layers.padding import pad_same
from torch import Tensor, nn

from safecl.backbone.families.survey import Survey
from safecl.errors import SafeclError
from safecl.pet.blocks import put
from safecl.pet.folding import Around, folded, products
from safecl.pet.settings import LoraSettings
from safecl.randomness import generator as derived

# projections that are layers of their own; key and value together change as the value does
SEPARATE = {
    "q_proj": "q",
    "k_proj": "k",
    "v_proj": "v",
    "q": "q",
    "k": "k",
    "v": "v",
    "kv": "v",
}


class LowRank(nn.Module):
    """x ↦ s B A x for two of query, key and value, 0 for the third; s = α/r, and B starts at 0."""

    def __init__(self, width: int, out: int, pet: LoraSettings, generator: torch.Generator) -> None:
        super().__init__()
        bound = 1 / math.sqrt(width)
        self.down = nn.Parameter(
            torch.empty(2 * pet.rank, width).uniform_(-bound, bound, generator=generator)
        )
        self.up = nn.Parameter(torch.zeros(2, out // 3, pet.rank))
        scale = torch.full((2, 1, 1), pet.alpha / pet.rank)
        self.scale: float | nn.Parameter = (
            nn.Parameter(scale) if pet.learn_scale else pet.alpha / pet.rank
        )
        self.projections = pet.projections

    def forward(self, x: Tensor) -> Tensor:
        parts = F.linear(x, self.down.to(x.dtype)).chunk(2, dim=-1)
        ups = (self.scale * self.up).to(x.dtype)
        one, other = (F.linear(part, up) for part, up in zip(parts, ups, strict=True))
        zeros = torch.zeros_like(one)
        return torch.cat(
            [one, zeros, other] if self.projections == "qv" else [zeros, one, other], dim=-1
        )


class LoraLinear(nn.Module):
    """A frozen linear layer plus its low-rank change."""

    def __init__(self, layer: nn.Linear, lora: LowRank) -> None:
        super().__init__()
        self.layer = layer
        self.lora = lora

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x) + self.lora(x)
        return y

    def merged(self, dtype: torch.dtype) -> nn.Module:
        """The layer with the change in its weight."""
        change = self.lora(torch.eye(self.layer.in_features).to(self.lora.down)).T
        weight = self.layer.weight + change.to(self.layer.weight.dtype)
        return folded(self.layer, weight, None)


class LowRankMap(nn.Module):
    """x ↦ s B A x for a whole linear or convolution layer, whose kernel A has; s = α/r, and B
    starts at 0.
    """

    def __init__(self, layer: Any, pet: LoraSettings, generator: torch.Generator) -> None:
        super().__init__()
        out, *shape = layer.weight.shape
        bound = 1 / math.sqrt(math.prod(shape))
        self.down = nn.Parameter(
            torch.empty(pet.rank, *shape).uniform_(-bound, bound, generator=generator)
        )
        self.up = nn.Parameter(torch.zeros(out, pet.rank))
        scale = torch.tensor(pet.alpha / pet.rank)
        self.scale: float | nn.Parameter = nn.Parameter(scale) if pet.learn_scale else float(scale)

    def change(self) -> Tensor:
        """Of the weight."""
        change: Tensor = (self.scale * self.up) @ self.down.flatten(1)
        return change.view(-1, *self.down.shape[1:])


class ChangedLayer(Around):
    """A frozen linear or convolution layer plus its low-rank change."""

    layer: Any
    lora: LowRankMap

    def __init__(self, layer: Any, lora: LowRankMap) -> None:
        super().__init__(layer)
        self.lora = lora

    def forward(self, x: Tensor) -> Tensor:
        layer = self.layer
        lora = self.lora
        down = lora.down.to(x.dtype)
        up = (lora.scale * lora.up).to(x.dtype)
        y: Tensor = layer(x)
        if isinstance(layer, nn.Linear):
            return y + F.linear(F.linear(x, down), up)
        padding = layer.padding
        if isinstance(layer, Conv2dSame):
            x = pad_same(x, [*layer.kernel_size], [*layer.stride], [*layer.dilation])
            padding = (0, 0)
        hidden = F.conv2d(x, down, None, layer.stride, padding, layer.dilation)
        return y + F.conv2d(hidden, up[:, :, None, None])

    def merged(self, dtype: torch.dtype) -> nn.Module:
        """The layer with the change in its weight."""
        weight = self.layer.weight
        return folded(self.layer, weight + self.lora.change().to(weight.dtype), None)


def attach_lora(pet: LoraSettings, block: Any, generator: torch.Generator) -> LowRank:
    """A low-rank change of the qkv projection of a block."""
    qkv = block.attn.qkv
    change = LowRank(qkv.in_features, qkv.out_features, pet, generator)
    block.attn.qkv = LoraLinear(qkv, change)
    return change


def places(network: nn.Module, found: Survey) -> list[list[str]]:
    """By block, the layers that are changed: the projections of its attention, or all of them. Of a
    network without blocks every layer is one.
    """
    chosen = []
    for names in map(found.inside, found.blocks):
        layers = [name for name in names if products(network.get_submodule(name))]
        attention = [name for name in layers if _part(name) in ("qkv", *SEPARATE)]
        chosen.append(attention or layers)
    if not any(chosen):
        chosen = [[name] for name in found.layers if products(network.get_submodule(name))]
    return [names for names in chosen if names]


def attach_layers(pet: LoraSettings, view: nn.Module, found: Survey, seed: int) -> nn.ModuleDict:
    """Low-rank changes in any network, by the names of the layers."""
    changes = nn.ModuleDict()
    every = [name for names in places(view, found)[: pet.blocks] for name in names]
    attention = [name for name in every if _part(name) in ("qkv", *SEPARATE)]
    if pet.projections != "qv" and not attention:
        kind = type(view).__name__
        raise SafeclError("pet.lora.projections", kind=kind, projections=pet.projections)
    for name in every:
        layer: Any = view.get_submodule(name)
        values = derived(seed, "pet", pet.kind, name)
        key = name.replace(".", "/")  # no dot may stand in the name of a module
        if _part(name) == "qkv" and _thirds(layer):
            changes[key] = both = LowRank(layer.in_features, layer.out_features, pet, values)
            put(view, name, LoraLinear(layer, both))
        elif SEPARATE.get(_part(name), pet.projections) in pet.projections:
            changes[key] = one = LowRankMap(layer, pet, values)
            put(view, name, ChangedLayer(layer, one))
    return changes


def _thirds(layer: nn.Module) -> bool:
    """Whether it gives query, key and value side by side."""
    return isinstance(layer, nn.Linear) and layer.out_features == 3 * layer.in_features


def _part(name: str) -> str:
    return name.rpartition(".")[2]
