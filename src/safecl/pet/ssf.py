"""SSF: scale and shift the output of every linear and normalisation layer."""

from typing import Any, cast

import torch
import torch.nn.functional as F
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from safecl.backbone.families.survey import Survey
from safecl.backbone.kernels import (
    layer_norm,
    layer_norm_gradient,
    merged_weights,
    norm_scale_gradients,
    scale_gradients,
)
from safecl.backbone.layers import Mlp
from safecl.pet.blocks import blocks, put
from safecl.pet.folding import Around, along, foldable, folded
from safecl.pet.settings import SsfSettings
from safecl.randomness import generator


class ScaleShift(nn.Module):
    """y = γ ⊙ x + β over the last dimension; at first γ ~ N(1, σ²) and β ~ N(0, σ²)."""

    def __init__(self, width: int, generator: torch.Generator, deviation: float = 0.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(1 + deviation * torch.randn(width, generator=generator))
        self.shift = nn.Parameter(deviation * torch.randn(width, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addcmul(self.shift.to(x.dtype), x, self.scale.to(x.dtype))


class ScaledLayer(nn.Module):
    """A frozen layer whose scale and shift are merged into its weights: fewer numbers than the
    output has.
    """

    def __init__(self, layer: nn.Module, ssf: ScaleShift) -> None:
        super().__init__()
        self.layer = layer
        self.ssf = ssf

    def forward(self, x: Tensor) -> Tensor:
        layer = self.layer
        scale = self.ssf.scale
        shift = self.ssf.shift
        if isinstance(layer, nn.Linear):
            y: Tensor = _ScaledLinear.apply(x, layer.weight, layer.bias, scale, shift)  # type: ignore[no-untyped-call]
        elif isinstance(layer, nn.LayerNorm) and layer.elementwise_affine:
            y = _ScaledNorm.apply(x, layer.weight, layer.bias, scale, shift, layer.eps)  # type: ignore[no-untyped-call]
        else:
            y = self.ssf(layer(x))
        return y

    def merged(self, dtype: torch.dtype) -> nn.Module:
        """The layer (linear or normalisation) with the scale and shift in its own weight and
        bias.
        """
        if isinstance(self.layer, nn.Identity):  # the patch embedding has no norm
            return self.ssf
        layer = cast("nn.Linear", self.layer)
        weight, bias = merged_weights(layer.weight, layer.bias, self.ssf.scale, self.ssf.shift)
        # By columns, as products on ARM read it a quarter faster. ``weight`` may be that of the
        # layer itself.
        weight = (
            weight.T.clone(memory_format=torch.contiguous_format).T
            if weight.ndim == 2
            else weight.clone()
        )
        layer.weight, layer.bias = (
            nn.Parameter(tensor, requires_grad=False) for tensor in (weight, bias.clone())
        )
        return layer


class ScaledOutput(Around):
    """Any frozen layer, and a scale and shift of the channels that it gives, along an ``axis``."""

    def __init__(self, layer: nn.Module, ssf: ScaleShift, axis: int) -> None:
        super().__init__(layer)
        self.ssf = ssf
        self.axis = axis

    def forward(self, *inputs: Any, **options: Any) -> Tensor:
        y: Tensor = self.layer(*inputs, **options)
        scale, shift = (
            along(values.to(y.dtype), self.axis, y.ndim)
            for values in (self.ssf.scale, self.ssf.shift)
        )
        return torch.addcmul(shift, y, scale)

    def merged(self, dtype: torch.dtype) -> nn.Module:
        """The layer with the scale and shift in its own weight and bias, where it is linear in
        them.
        """
        if not foldable(self.layer):
            return self
        layer: Any = self.layer
        weight, bias = merged_weights(layer.weight, layer.bias, self.ssf.scale, self.ssf.shift)
        return folded(layer, weight, bias)


class ScaledMlp(Mlp):
    """fc2(GELU(fc1(x))) of two scaled linear layers as one function: GELU(z) is not kept for the
    backward pass.
    """

    def forward(self, x: Tensor) -> Tensor:
        tensors = [
            (each.layer.weight, each.layer.bias, each.ssf.scale, each.ssf.shift)
            for each in (self.fc1, self.fc2)
        ]
        y: Tensor = _ScaledMlp.apply(x, *tensors[0], *tensors[1])  # type: ignore[no-untyped-call]
        return y

    def merged(self, dtype: torch.dtype) -> nn.Module:
        return Mlp(self.fc1.merged(dtype), self.fc2.merged(dtype))


class _ScaledLinear(torch.autograd.Function):
    """z = γ ⊙ (W x + b) + β by one matrix product, and its gradients by x, γ and β: W and b are
    frozen.
    """

    @staticmethod
    def forward(
        context: Any, x: Tensor, weight: Tensor, bias: Tensor | None, scale: Tensor, shift: Tensor
    ) -> Tensor:
        rows, offset = merged_weights(weight, bias, scale, shift)
        z = F.linear(x, rows, offset)
        context.save_for_backward(z, x, weight, bias, scale, shift, rows)
        return z

    @staticmethod
    @once_differentiable
    def backward(context: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        *saved, rows = context.saved_tensors
        by_z, *by_ssf = scale_gradients(g, *saved)
        return by_z @ rows if context.needs_input_grad[0] else None, None, None, *by_ssf


class _ScaledMlp(torch.autograd.Function):
    """Two of them with a GELU between. For the gradient by γ of the second, GELU(z) is computed
    again if needed.
    """

    @staticmethod
    def forward(context: Any, x: Tensor, *tensors: Tensor | None) -> Tensor:
        rows1, offset1 = merged_weights(*tensors[:4])  # type: ignore[arg-type]
        rows2, offset2 = merged_weights(*tensors[4:])  # type: ignore[arg-type]
        z = F.linear(x, rows1, offset1)
        y = F.linear(F.gelu(z), rows2, offset2)
        context.save_for_backward(x, z, y, rows1, rows2, *tensors)
        return y

    @staticmethod
    @once_differentiable
    def backward(context: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, z, y, rows1, rows2, *tensors = context.saved_tensors
        by_y, *by_second = scale_gradients(g, y, z, *tensors[4:], gelu_in=True)
        by_z, *by_first = scale_gradients(by_y @ rows2, z, x, *tensors[:4], gelu_out=True)
        by_x = by_z @ rows1 if context.needs_input_grad[0] else None
        return by_x, None, None, *by_first, None, None, *by_second


class _ScaledNorm(torch.autograd.Function):
    """z = γ ⊙ LN(x) + β, and its gradients by x, γ and β: the weight and bias of LN are frozen."""

    @staticmethod
    def forward(
        context: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        scale: Tensor,
        shift: Tensor,
        eps: float,
    ) -> Tensor:
        rows, offset = merged_weights(weight, bias, scale, shift)
        z, mean, spread = layer_norm(x, rows, offset, eps)
        context.save_for_backward(x, mean, spread, rows, offset, weight, bias, scale)
        return z

    @staticmethod
    @once_differentiable
    def backward(context: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, mean, spread, rows, offset, *frozen = context.saved_tensors
        by_x = (
            layer_norm_gradient(g, x, mean, spread, rows, offset)
            if context.needs_input_grad[0]
            else None
        )
        return by_x, None, None, *norm_scale_gradients(g, x, mean, spread, *frozen), None


def attach_ssf(pet: SsfSettings, view: VisionTransformer, seed: int) -> nn.ModuleDict:
    """A scale and a shift after each operation, by place."""
    ssf = nn.ModuleDict()

    def follow(place: str, owner: nn.Module, name: str) -> None:
        layer: Any = getattr(owner, name)
        width = getattr(layer, "out_features", view.embed_dim)
        ssf[place] = after = ScaleShift(
            width, generator(seed, "pet", pet.kind, place), pet.deviation
        )
        setattr(owner, name, ScaledLayer(layer, after))

    follow("patches", view.patch_embed, "norm")
    for i, block in enumerate(blocks(view)):
        for owner, names in (
            (block, ("norm1", "norm2")),
            (block.attn, ("qkv", "proj")),
            (block.mlp, ("fc1", "fc2")),
        ):
            for name in names:
                follow(f"{i}_{name}", owner, name)
        if type(block.mlp) is Mlp:
            block.mlp = ScaledMlp(block.mlp.fc1, block.mlp.fc2)
    follow("norm", view, "norm")
    return ssf


def attach_everywhere(pet: SsfSettings, view: nn.Module, found: Survey, seed: int) -> nn.ModuleDict:
    """A scale and a shift after each linear, convolution and norm layer of any network, by its
    name.
    """
    ssf = nn.ModuleDict()
    for name, place in found.layers.items():
        key = name.replace(".", "/")  # no dot may stand in the name of a module
        values = generator(seed, "pet", pet.kind, name)
        ssf[key] = after = ScaleShift(place.width, values, pet.deviation)
        put(view, name, ScaledOutput(view.get_submodule(name), after, place.axis))
    return ssf
