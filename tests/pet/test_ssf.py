"""SSF against a forward pass written out by hand: one scale and shift after each operation."""

from collections.abc import Callable
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from timm.layers.mlp import Mlp
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from safecl.backbone.layers import Gelu
from safecl.pet.attach import attach
from safecl.pet.settings import pet_settings
from safecl.pet.ssf import ScaledLayer, ScaledMlp, ScaleShift

LAYERS = ("norm1", "qkv", "proj", "norm2", "fc1", "fc2")
PLACES = ["patches", "norm", *(f"{i}_{layer}" for i in (0, 1) for layer in LAYERS)]


def neutral(vit: VisionTransformer) -> tuple[VisionTransformer, torch.nn.ModuleDict]:
    """SSF that changes nothing yet."""
    view, pet = attach(vit, pet_settings("ssf"))
    with torch.no_grad():
        for place in pet.values():
            place.scale.fill_(1)
            place.shift.zero_()
    return view, pet


def test_there_is_one_after_every_operation_and_none_elsewhere(vit: VisionTransformer) -> None:
    _, pet = attach(vit, pet_settings("ssf"))
    assert set(pet) == set(PLACES)
    assert pet["0_qkv"].scale.shape == (72,) and pet["1_fc1"].shift.shape == (96,)


@pytest.mark.parametrize("place", PLACES)
def test_each_stands_where_its_name_says(
    place: str,
    vit: VisionTransformer,
    images: Tensor,
    scramble: Callable[..., None],
    reference: Callable[..., Tensor],
) -> None:
    view, pet = neutral(vit)
    scramble(pet[place], seed=5, deviation=0.5)
    scale = pet[place].scale.double()
    shift = pet[place].shift.double()
    expected = reference(vit, images, after=lambda at, x: x * scale + shift if at == place else x)
    assert torch.allclose(view.forward_features(images), expected, atol=1e-6)
    assert not torch.allclose(reference(vit, images), expected, atol=1e-6)


def test_together_they_are_the_whole_of_ssf(
    vit: VisionTransformer,
    images: Tensor,
    scramble: Callable[..., None],
    reference: Callable[..., Tensor],
) -> None:
    view, pet = attach(vit, pet_settings("ssf"))
    scramble(pet)
    expected = reference(
        vit, images, after=lambda at, x: x * pet[at].scale.double() + pet[at].shift.double()
    )
    assert torch.allclose(view.forward_features(images), expected, atol=1e-6)


def test_initial_values_lie_around_one_and_zero(make_vit: Callable[..., VisionTransformer]) -> None:
    _, pet = attach(make_vit(embed_dim=240), pet_settings("ssf", deviation=0.02))
    scales = torch.cat([place.scale.detach() for place in pet.values()])
    shifts = torch.cat([place.shift.detach() for place in pet.values()])
    for values, mean in ((scales, 1.0), (shifts, 0.0)):
        assert abs(float(values.mean()) - mean) < 2e-3 and abs(float(values.std()) - 0.02) < 2e-3
    assert abs(float(torch.corrcoef(torch.stack([scales, shifts]))[0, 1])) < 0.1


# -- gradients -------------------------------------------------------------------------------------

SCALES = (1.0, 0.1, 0.01, 0.001, 1e-6, 0.0, -0.3)
SHIFTS = (0.0, 0.3, -2.0)
PAIRS = list(product(SCALES, SHIFTS))
GOOD = [(1.0, 0.3), (0.1, 0.3), (-0.3, -2.0)]
BAD = [(0.01, 0.3), (1e-6, -2.0), (0.0, 0.0)]
PRECISIONS = [(torch.float64, 1e-12), (torch.float32, 1e-4), (torch.bfloat16, 3e-2)]


def scale_shift(pairs: list[tuple[float, float]], dtype: torch.dtype) -> ScaleShift:
    """The given scales and shifts, one pair a channel; in float32 at least, as they are trained."""
    ssf = ScaleShift(len(pairs), torch.Generator())
    ssf.scale.data, ssf.shift.data = torch.tensor(pairs, dtype=torch.float64).T.contiguous()
    return ssf.to(dtype if dtype == torch.float64 else torch.float32)


def gradients(y: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    g = g.bfloat16().to(y.dtype)  # the same numbers in every precision
    return [gradient.double() for gradient in torch.autograd.grad(y, inputs, g)]


def close(found: list[Tensor], expected: list[Tensor], ssf: ScaleShift, tolerance: float) -> None:
    """``found[1]`` is by the scale: compared channel by channel, for it is no smaller where the
    scale is.
    """
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(
            one, other, rtol=0, atol=tolerance * (1 + 8) * float(other.abs().max())
        )
    ratio = (ssf.shift / ssf.scale).detach().double().abs()
    # u is read back from z where the shift is at most 8 scales, with the rounding of a number so
    # much larger.
    allowed = tolerance * (1 + torch.where(ratio <= 8, ratio, 0)) * expected[1].abs().median()
    assert ((found[1] - expected[1]).abs() <= allowed + tolerance * expected[1].abs()).all()


@pytest.mark.parametrize("pairs", [PAIRS, GOOD, BAD], ids=["mixed", "good", "bad"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("dtype, tolerance", PRECISIONS)
def test_the_gradient_of_a_linear_layers_scale_is_exact_at_any_scale(
    dtype: torch.dtype, tolerance: float, bias: bool, pairs: list[tuple[float, float]]
) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(40, len(pairs), bias=bias).to(dtype).requires_grad_(False)
    ssf = scale_shift(pairs, dtype)
    x = torch.randn(3, 50, 40).to(dtype).requires_grad_()
    found = gradients(ScaledLayer(layer, ssf)(x), [x, ssf.scale, ssf.shift])
    exact = [tensor.detach().double().requires_grad_() for tensor in (x, ssf.scale, ssf.shift)]
    u = F.linear(exact[0], layer.weight.double(), layer.bias.double() if bias else None)
    close(found, gradients(u * exact[1] + exact[2], exact), ssf, tolerance)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("dtype, tolerance", PRECISIONS)
def test_the_gradient_of_a_norms_scale_is_exact_at_any_scale(
    dtype: torch.dtype, tolerance: float, bias: bool
) -> None:
    torch.manual_seed(0)
    layer = nn.LayerNorm(len(PAIRS), eps=1e-6, bias=bias).requires_grad_(False)
    for parameter in layer.parameters():
        parameter += torch.randn(parameter.shape)
    ssf = scale_shift(PAIRS, dtype)
    x = (3 + torch.randn(3, 50, len(PAIRS))).to(dtype).requires_grad_()
    layer.to(ssf.scale.dtype)
    found = gradients(ScaledLayer(layer, ssf)(x), [x, ssf.scale, ssf.shift])
    exact = [tensor.detach().double().requires_grad_() for tensor in (x, ssf.scale, ssf.shift)]
    u = F.layer_norm(
        exact[0], (len(PAIRS),), layer.weight.double(), layer.bias.double() if bias else None, 1e-6
    )
    close(found, gradients(u * exact[1] + exact[2], exact), ssf, tolerance)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("dtype, tolerance", PRECISIONS)
def test_the_gradients_of_an_mlps_scales_are_exact_at_any_scale(
    dtype: torch.dtype, tolerance: float, bias: bool
) -> None:
    torch.manual_seed(0)
    mlp = Mlp(30, len(PAIRS), len(PAIRS), bias=bias).to(dtype).requires_grad_(False)
    mlp.act = Gelu()
    first, second = (scale_shift(pairs, dtype) for pairs in (PAIRS, PAIRS[::-1]))
    x = torch.randn(3, 50, 30).to(dtype).requires_grad_()
    inputs = [x, first.scale, first.shift, second.scale, second.shift]
    found = gradients(
        ScaledMlp(ScaledLayer(mlp.fc1, first), ScaledLayer(mlp.fc2, second))(x), inputs
    )
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    biases = [layer.bias.double() if bias else None for layer in (mlp.fc1, mlp.fc2)]
    u = F.gelu(F.linear(exact[0], mlp.fc1.weight.double(), biases[0]) * exact[1] + exact[2])
    y = F.linear(u, mlp.fc2.weight.double(), biases[1]) * exact[3] + exact[4]
    expected = gradients(y, exact)
    close(found, expected, first, tolerance)
    close([found[0], *found[3:]], [expected[0], *expected[3:]], second, tolerance)
