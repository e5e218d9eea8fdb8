"""Layers that are linear in their weight and bias: what a PET does to their output can become a
part of these.
"""

from typing import Any

from timm.layers.conv2d_same import Conv2dSame
from timm.layers.norm import GroupNorm, GroupNorm1, LayerNorm, LayerNorm2d
from torch import Tensor, nn

PRODUCTS = (nn.Linear, nn.Conv2d, Conv2dSame)
NORMS = (nn.LayerNorm, LayerNorm, LayerNorm2d, nn.BatchNorm2d, nn.GroupNorm, GroupNorm, GroupNorm1)


class Around(nn.Module):
    """A module around a frozen ``layer``, of which a network may read more than it calls."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            inner: Any = super().__getattr__("layer")
            return getattr(inner, name)


def foldable(layer: nn.Module) -> bool:
    """Whether scale and shift of its output can be those of its weight and bias; a kind that is
    derived from one of these may do more.
    """
    weight = getattr(layer, "weight", None)
    return type(layer) in (*PRODUCTS, *NORMS) and isinstance(weight, Tensor)


def folded(layer: Any, weight: Tensor, bias: Tensor | None) -> nn.Module:
    """The layer with this weight and bias."""
    layer.weight = nn.Parameter(weight.clone(), requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias.clone(), requires_grad=False)
    found: nn.Module = layer
    return found


def along(values: Tensor, axis: int, dimensions: int) -> Tensor:
    """One number a channel, (C,), laid along an axis of so many."""
    return values if axis == -1 else values.view(-1, *[1] * (dimensions - 1 - axis))


def products(layer: nn.Module) -> bool:
    """Whether it is a matrix product or a convolution that mixes all channels."""
    return type(layer) in PRODUCTS and getattr(layer, "groups", 1) == 1
