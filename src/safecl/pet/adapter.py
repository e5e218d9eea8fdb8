"""Adapter (parallel): a small bottleneck beside the MLP of a block (AdaptFormer) or beside its attention (LAE)."""

import copy
import math

import torch
import torch.nn.functional as F
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.nn.utils import skip_init

from safecl.backbone.layers import Attention, Prefix
from safecl.backbone.view import shared_view
from safecl.pet.blocks import blocks, plain_attention
from safecl.pet.settings import AdapterSettings
from safecl.randomness import generator

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU}


class Adapter(nn.Module):
    """a = s · (Drop(ReLU(x W_down + b_down)) W_up + b_up); W_up starts at 0: the network starts as the PTM.

    ``pet`` may choose GELU in place of ReLU, and a factor s that is trained.
    """

    def __init__(self, width: int, pet: AdapterSettings, generator: torch.Generator) -> None:
        super().__init__()
        # nn.Linear draws its initial values from torch's global generator, which a library leaves as it is.
        self.down: nn.Linear = skip_init(nn.Linear, width, pet.bottleneck)  # type: ignore[no-untyped-call]
        self.up: nn.Linear = skip_init(nn.Linear, pet.bottleneck, width)  # type: ignore[no-untyped-call]
        self.activation = ACTIVATIONS[pet.activation]()
        self.dropout = nn.Dropout(pet.dropout)
        self.scale: float | nn.Parameter = nn.Parameter(torch.tensor(pet.scale)) if pet.learn_scale else pet.scale
        bound = 1 / math.sqrt(width)
        with torch.no_grad():
            self.down.weight.uniform_(-bound, bound, generator=generator)
            for zero in (self.down.bias, self.up.weight, self.up.bias):
                zero.zero_()

    def forward(self, x: Tensor) -> Tensor:
        down, up = self.down, self.up
        hidden = self.dropout(self.activation(F.linear(x, down.weight.to(x.dtype), down.bias.to(x.dtype))))
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


class AdaptedAttention(Attention):
    """x ↦ ls1(attention(x)) + adapter(x) of x = LN1(tokens); the options are those of ``Attention``."""

    def __init__(self, attention: Attention, layer_scale: nn.Module, adapter: nn.Module) -> None:
        super().__init__(attention)
        self.layer_scale, self.adapter = layer_scale, adapter

    def forward(
        self,
        x: Tensor,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        queries: int | None = None,
        prefix: Prefix | None = None,
    ) -> Tensor:
        y: Tensor = self.layer_scale(super().forward(x, attn_mask, is_causal, queries, prefix))
        a: Tensor = self.adapter(x[:, :queries])
        return y + a


def attach_adapter(pet: AdapterSettings, vit: VisionTransformer, seed: int) -> tuple[VisionTransformer, nn.ModuleDict]:
    """An adapter beside every MLP or attention, by block."""
    view, adapters = shared_view(vit), nn.ModuleDict()
    for i, block in enumerate(blocks(view)[: pet.blocks]):
        adapters[str(i)] = adapter = Adapter(view.embed_dim, pet, generator(seed, "pet", pet.kind, i))
        # Block.forward stays timm's: the norm and the layer scale that the adapter is beside move inside.
        if pet.place == "mlp":
            block.mlp = AdaptedMlp(block.norm2, block.mlp, block.ls2, adapter)
            block.norm2, block.ls2 = nn.Identity(), nn.Identity()
        else:
            block.attn = AdaptedAttention(plain_attention(block), block.ls1, adapter)
            block.ls1 = nn.Identity()
    return view, adapters


@torch.no_grad()
def merge_adapter(view: VisionTransformer) -> None:
    """Multiply the factor into the weights of every adapter and round these to the precision of the network."""
    for owner in view.modules():
        if isinstance(owner, AdaptedMlp | AdaptedAttention) and isinstance(owner.adapter, Adapter):
            adapter = owner.adapter
            down, up = copy.deepcopy(adapter.down), copy.deepcopy(adapter.up)
            for parameter in up.parameters():
                parameter.mul_(adapter.scale)
            dtype = next((owner.mlp if isinstance(owner, AdaptedMlp) else owner.qkv).parameters()).dtype
            owner.adapter = nn.Sequential(down, adapter.activation, up).to(dtype).requires_grad_(False)
