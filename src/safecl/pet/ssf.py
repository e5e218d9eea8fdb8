"""SSF: scale and shift the output of every linear and normalisation layer."""

from typing import Any

import torch
import torch.nn.functional as F
from timm.layers.mlp import Mlp
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from safecl.backbone.kernels import layer_norm, layer_norm_gradient, merged_weights, scale_gradients
from safecl.backbone.layers import Gelu
from safecl.pet.blocks import blocks


class ScaleShift(nn.Module):
    """y = γ ⊙ x + β over the last dimension; γ ~ N(1, 0.02²), β ~ N(0, 0.02²)."""

    def __init__(self, width: int, generator: torch.Generator, deviation: float = 0.02) -> None:
        super().__init__()
        self.scale = nn.Parameter(1 + deviation * torch.randn(width, generator=generator))
        self.shift = nn.Parameter(deviation * torch.randn(width, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addcmul(self.shift.to(x.dtype), x, self.scale.to(x.dtype))


class ScaledLayer(nn.Module):
    """A frozen layer, the scale and shift after it, and perhaps a GELU after those, as one layer.

    The scale and shift cost a pass over the weights then, not over the activations.
    """

    def __init__(self, layer: nn.Module, ssf: ScaleShift, gelu: bool = False) -> None:
        super().__init__()
        self.layer, self.ssf, self.gelu = layer, ssf, gelu

    def forward(self, x: Tensor) -> Tensor:
        layer, scale, shift = self.layer, self.ssf.scale, self.ssf.shift
        if isinstance(layer, nn.Linear):
            y: Tensor = _ScaledLinear.apply(x, layer.weight, layer.bias, scale, shift, self.gelu)  # type: ignore[no-untyped-call]
        elif isinstance(layer, nn.LayerNorm) and layer.elementwise_affine:
            y = _ScaledNorm.apply(x, layer.weight, layer.bias, scale, shift, layer.eps)  # type: ignore[no-untyped-call]
        else:
            y = self.ssf(layer(x))
        return y


class _ScaledLinear(torch.autograd.Function):
    """z = γ ⊙ (W x + b) + β with one matrix product, or GELU(z), and the gradients by x, γ and β: W is frozen."""

    @staticmethod
    def forward(
        context: Any, x: Tensor, weight: Tensor, bias: Tensor | None, scale: Tensor, shift: Tensor, gelu: bool
    ) -> Tensor:
        rows, offset = merged_weights(weight, bias, scale, shift)
        z = F.linear(x, rows, offset)
        context.save_for_backward(z, rows, scale, shift)
        context.gelu = gelu
        return F.gelu(z) if gelu else z

    @staticmethod
    @once_differentiable
    def backward(context: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        z, rows, scale, shift = context.saved_tensors
        by_z, *by_ssf = scale_gradients(g, z, scale, shift, context.gelu)
        return by_z @ rows if context.needs_input_grad[0] else None, None, None, *by_ssf, None


class _ScaledNorm(torch.autograd.Function):
    """z = γ ⊙ LN(x) + β, likewise."""

    @staticmethod
    def forward(
        context: Any, x: Tensor, weight: Tensor, bias: Tensor | None, scale: Tensor, shift: Tensor, eps: float
    ) -> Tensor:
        rows, offset = merged_weights(weight, bias, scale, shift)
        z, mean, spread = layer_norm(x, rows, offset, eps)
        context.save_for_backward(x, mean, spread, rows, offset, z, scale, shift)
        return z

    @staticmethod
    @once_differentiable
    def backward(context: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, mean, spread, rows, offset, z, scale, shift = context.saved_tensors
        by_x = layer_norm_gradient(g, x, mean, spread, rows, offset) if context.needs_input_grad[0] else None
        _, *by_ssf = scale_gradients(g, z, scale, shift, gelu=False)
        return by_x, None, None, *by_ssf, None


def attach_ssf(vit: VisionTransformer, generator: torch.Generator) -> nn.ModuleDict:
    """Follow each operation of ``vit`` by a scale and a shift; gives them by place."""
    ssf = nn.ModuleDict()

    def follow(place: str, owner: nn.Module, name: str, width: int, gelu: bool = False) -> None:
        ssf[place] = after = ScaleShift(width, generator)
        setattr(owner, name, ScaledLayer(getattr(owner, name), after, gelu))

    d = vit.embed_dim
    follow("patches", vit.patch_embed, "norm", d)
    for i, block in enumerate(blocks(vit)):
        follow(f"{i}_norm1", block, "norm1", d)
        follow(f"{i}_qkv", block.attn, "qkv", block.attn.qkv.out_features)
        follow(f"{i}_proj", block.attn, "proj", d)
        follow(f"{i}_norm2", block, "norm2", d)
        gelu = type(block.mlp) is Mlp and type(block.mlp.act) is Gelu  # which then comes with the layer before it
        follow(f"{i}_fc1", block.mlp, "fc1", block.mlp.fc1.out_features, gelu)
        if gelu:
            block.mlp.act = nn.Identity()
        follow(f"{i}_fc2", block.mlp, "fc2", d)
    follow("norm", vit, "norm", d)
    return ssf


@torch.no_grad()
def merge_ssf(vit: VisionTransformer) -> None:
    """Multiply every scale and shift of ``vit`` into the weights it follows; the output stays the same."""
    for owner in list(vit.modules()):
        for name, child in list(owner.named_children()):
            if isinstance(child, ScaledLayer):
                alone = _with_scale(child.layer, child.ssf)
                setattr(owner, name, nn.Sequential(alone, Gelu()) if child.gelu else alone)


def _with_scale(layer: Any, ssf: ScaleShift) -> nn.Module:
    """``layer`` (linear or normalisation) with the scale and shift in its own weight and bias."""
    if isinstance(layer, nn.Identity):  # the patch embedding has no norm: the scale and shift stay by themselves
        return ssf
    weight, bias = merged_weights(layer.weight, layer.bias, ssf.scale, ssf.shift)
    layer.weight, layer.bias = (nn.Parameter(tensor.clone(), requires_grad=False) for tensor in (weight, bias))
    alone: nn.Module = layer
    return alone
