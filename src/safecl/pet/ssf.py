"""SSF: scale and shift the output of every linear and normalisation layer."""

from typing import Any, cast

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from safecl.pet.blocks import blocks


class ScaleShift(nn.Module):
    """y = γ ⊙ x + β over the last dimension; γ ~ N(1, 0.02²), β ~ N(0, 0.02²)."""

    def __init__(self, width: int, generator: torch.Generator, deviation: float = 0.02) -> None:
        super().__init__()
        self.scale = nn.Parameter(1 + deviation * torch.randn(width, generator=generator))
        self.shift = nn.Parameter(deviation * torch.randn(width, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.shift


def attach_ssf(vit: VisionTransformer, generator: torch.Generator) -> nn.ModuleDict:
    """Follow each operation of ``vit`` by a scale and a shift; gives them by place."""
    ssf = nn.ModuleDict()

    def follow(place: str, owner: nn.Module, name: str, width: int) -> None:
        ssf[place] = ScaleShift(width, generator)
        setattr(owner, name, nn.Sequential(getattr(owner, name), ssf[place]))

    d = vit.embed_dim
    follow("patches", vit.patch_embed, "norm", d)
    for i, block in enumerate(blocks(vit)):
        follow(f"{i}_norm1", block, "norm1", d)
        follow(f"{i}_qkv", block.attn, "qkv", block.attn.qkv.out_features)
        follow(f"{i}_proj", block.attn, "proj", d)
        follow(f"{i}_norm2", block, "norm2", d)
        follow(f"{i}_fc1", block.mlp, "fc1", block.mlp.fc1.out_features)
        follow(f"{i}_fc2", block.mlp, "fc2", d)
    follow("norm", vit, "norm", d)
    return ssf


@torch.no_grad()
def fold_ssf(vit: VisionTransformer) -> None:
    """Multiply every scale and shift of ``vit`` into the weights it follows; the output stays the same."""
    for owner in list(vit.modules()):
        for name, child in list(owner.named_children()):
            if isinstance(child, nn.Sequential) and len(child) == 2 and isinstance(child[1], ScaleShift):
                setattr(owner, name, _folded(child[0], child[1]))


def _folded(layer: Any, ssf: ScaleShift) -> nn.Module:
    """``layer`` (linear or normalisation) with the scale and shift in its own weight and bias."""
    if isinstance(layer, nn.Identity):  # the patch embedding has no norm: the scale and shift stay by themselves
        return ssf
    bias = ssf.shift if layer.bias is None else layer.bias * ssf.scale + ssf.shift
    rows = ssf.scale.reshape(-1, *[1] * (layer.weight.ndim - 1))
    layer.weight = nn.Parameter(layer.weight * rows, requires_grad=False)
    layer.bias = nn.Parameter(bias.clone(), requires_grad=False)
    return cast(nn.Module, layer)
