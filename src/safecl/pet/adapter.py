"""Adapter (parallel): a small bottleneck beside the MLP of a block (AdaptFormer) or beside its
attention (LAE); in other networks than timm's ViT, beside a whole residual block.
"""

import copy
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import skip_init

from safecl.backbone.families.survey import Survey
from safecl.backbone.layers import Attention
from safecl.errors import SafeclError
from safecl.pet.blocks import plain_attention, put
from safecl.pet.folding import Around
from safecl.pet.settings import AdapterSettings
from safecl.randomness import generator as derived

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU}


class Adapter(nn.Module):
    """a = s · (Drop(ReLU(x W_down + b_down)) W_up + b_up); W_up starts at 0: the network starts as
    the PTM.

    ``pet`` may choose GELU in place of ReLU, and a factor s that is trained.
    """

    def __init__(self, width: int, pet: AdapterSettings, generator: torch.Generator) -> None:
        super().__init__()
        # nn.Linear draws its initial values from torch's global generator, which a library leaves
        # as it is.
        self.down: nn.Linear = skip_init(nn.Linear, width, pet.bottleneck)  # type: ignore[no-untyped-call]
        self.up: nn.Linear = skip_init(nn.Linear, pet.bottleneck, width)  # type: ignore[no-untyped-call]
        self.activation = ACTIVATIONS[pet.activation]()
        self.dropout = nn.Dropout(pet.dropout)
        self.scale: float | nn.Parameter = (
            nn.Parameter(torch.tensor(pet.scale)) if pet.learn_scale else pet.scale
        )
        bound = 1 / math.sqrt(width)
        with torch.no_grad():
            self.down.weight.uniform_(-bound, bound, generator=generator)
            for zero in (self.down.bias, self.up.weight, self.up.bias):
                zero.zero_()

    def forward(self, x: Tensor) -> Tensor:
        down = self.down
        up = self.up
        hidden = self.dropout(
            self.activation(F.linear(x, down.weight.to(x.dtype), down.bias.to(x.dtype)))
        )
        # s multiplies the weights, which are fewer than the activations.
        return F.linear(
            hidden, (self.scale * up.weight).to(x.dtype), (self.scale * up.bias).to(x.dtype)
        )

    def merged(self, dtype: torch.dtype) -> nn.Module:
        """A copy for inference with the factor in the weights, rounded to the precision of the
        network.
        """
        down = copy.deepcopy(self.down)
        up = copy.deepcopy(self.up)
        for parameter in up.parameters():
            parameter.mul_(self.scale)
        return nn.Sequential(down, self.activation, up).to(dtype).requires_grad_(False)


class AdaptedMlp(nn.Module):
    """x ↦ MLP(LN2(x)) + adapter(x): the adapter reads the residual stream before LN2."""

    def __init__(
        self, norm: nn.Module, mlp: nn.Module, layer_scale: nn.Module, adapter: Adapter
    ) -> None:
        super().__init__()
        self.norm = norm
        self.mlp = mlp
        self.layer_scale = layer_scale
        self.adapter = adapter

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer_scale(self.mlp(self.norm(x))) + self.adapter(x)
        return y


class AdaptedAttention(Attention):
    """x ↦ ls1(attention(x)) + adapter(x) of x = LN1(tokens); the options are those of
    ``Attention``.
    """

    def __init__(self, attention: Attention, layer_scale: nn.Module, adapter: Adapter) -> None:
        super().__init__(attention)
        self.layer_scale = layer_scale
        self.adapter = adapter

    def forward(self, x: Tensor, *masks: Any, **options: Any) -> Tensor:
        y: Tensor = self.layer_scale(super().forward(x, *masks, **options))
        y = y + self.adapter(x[:, : options.get("queries")])
        return y


def attach_adapter(pet: AdapterSettings, block: Any, generator: torch.Generator) -> Adapter:
    """An adapter beside the MLP or the attention of a block."""
    adapter = Adapter(block.attn.qkv.in_features, pet, generator)
    # Block.forward stays timm's: the norm and the layer scale that the adapter is beside move
    # inside.
    if pet.place == "mlp":
        block.mlp = AdaptedMlp(block.norm2, block.mlp, block.ls2, adapter)
        block.norm2 = nn.Identity()
        block.ls2 = nn.Identity()
    else:
        block.attn = AdaptedAttention(plain_attention(block), block.ls1, adapter)
        block.ls1 = nn.Identity()
    return adapter


class AdaptedBlock(Around):
    """x ↦ block(x) + adapter(x), whose channels lie along an ``axis``."""

    def __init__(self, block: nn.Module, adapter: Adapter, axis: int) -> None:
        super().__init__(block)
        self.adapter = adapter
        self.axis = axis

    def forward(self, x: Tensor, *others: Any, **options: Any) -> Tensor:
        beside: Tensor = self.adapter(x.movedim(self.axis, -1)).movedim(-1, self.axis)
        y: Tensor = self.layer(x, *others, **options)  # which may change x in place
        return y + beside


def attach_beside(pet: AdapterSettings, view: nn.Module, found: Survey, seed: int) -> nn.ModuleDict:
    """An adapter beside each residual block of any network, by the name of the block."""
    if pet.place != "mlp":
        raise SafeclError("pet.adapter.place", kind=type(view).__name__, place=pet.place)
    adapters = nn.ModuleDict()
    for name, place in list(found.blocks.items())[: pet.blocks]:
        values = derived(seed, "pet", pet.kind, name)
        key = name.replace(".", "/")  # no dot may stand in the name of a module
        adapters[key] = adapter = Adapter(place.width, pet, values)
        put(view, name, AdaptedBlock(view.get_submodule(name), adapter, place.axis))
    return adapters
