"""The passes with kernels of their own, as torch computes them: against autograd of the plain
formula.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from safecl.backbone import kernels
from safecl.backbone.kernels import (
    gelu_gradient,
    layer_norm,
    layer_norm_gradient,
    merged_weights,
    norm_scale_gradients,
    scale_gradients,
)
from safecl.backbone.layers import Gelu

PRECISIONS = [(torch.float32, 1e-5), (torch.float64, 1e-12)]


def draw(dtype: torch.dtype, *shape: int, seed: int = 0) -> Tensor:
    return (
        torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
        .to(dtype)
        .requires_grad_()
    )


def close(one: Tensor, other: Tensor, tolerance: float) -> bool:
    return torch.allclose(
        one, other, rtol=0, atol=tolerance * max(1.0, float(other.detach().abs().max()))
    )


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("dtype, tolerance", PRECISIONS)
def test_the_gradient_of_gelu_is_that_of_autograd(
    dtype: torch.dtype, tolerance: float, vectors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "VECTORS", vectors)
    x = draw(dtype, 3, 9, 12)
    g = draw(dtype, 3, 9, 12, seed=1).detach()
    (expected,) = torch.autograd.grad(F.gelu(x), x, g)
    assert close(gelu_gradient(g, x.detach()), expected, tolerance)
    y = Gelu()(x)
    assert torch.equal(y, F.gelu(x)) and close(torch.autograd.grad(y, x, g)[0], expected, tolerance)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype, tolerance", PRECISIONS)
def test_the_gradients_of_a_scaled_norm_are_those_of_autograd(
    dtype: torch.dtype, tolerance: float, bias: bool
) -> None:
    x = draw(dtype, 3, 9, 12)
    g = draw(dtype, 3, 9, 12, seed=1).detach()
    weight, scale, shift = (draw(dtype, 12, seed=seed) for seed in (2, 3, 4))
    offset = draw(dtype, 12, seed=5) if bias else None
    z = F.layer_norm(x, (12,), weight, offset) * scale + shift
    expected = torch.autograd.grad(z, (x, scale, shift), g)
    with torch.no_grad():
        rows, merged = merged_weights(weight, offset, scale, shift)
        found, mean, spread = layer_norm(x, rows, merged, 1e-5)
        assert close(found, z, tolerance)
        assert close(layer_norm_gradient(g, x, mean, spread, rows, merged), expected[0], tolerance)
        for one, other in zip(
            norm_scale_gradients(g, x, mean, spread, weight, offset, scale),
            expected[1:],
            strict=True,
        ):
            assert close(one, other, tolerance)


@pytest.mark.parametrize("gelu_in", [True, False])
@pytest.mark.parametrize("gelu_out", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype, tolerance", PRECISIONS)
def test_the_gradients_of_a_scaled_linear_layer_are_those_of_autograd(
    dtype: torch.dtype, tolerance: float, bias: bool, gelu_in: bool, gelu_out: bool
) -> None:
    """With scales of 0 and of 1e-5, where the output does not tell what was scaled."""
    x = draw(dtype, 3, 9, 12)
    g = draw(dtype, 3, 9, 7, seed=1).detach()
    weight = draw(dtype, 7, 12, seed=2)
    scale, shift, offset = (draw(dtype, 7, seed=seed) for seed in (3, 4, 5))
    scale.data[:2] = torch.tensor([0.0, 1e-5])
    added = offset if bias else None
    z = F.linear(F.gelu(x) if gelu_in else x, weight, added) * scale + shift
    expected = torch.autograd.grad(F.gelu(z) if gelu_out else z, (z, scale, shift), g)
    found = scale_gradients(
        g, z.detach(), x, weight, added, scale, shift, gelu_in=gelu_in, gelu_out=gelu_out
    )
    for one, other in zip(found, expected, strict=True):
        assert close(one, other, 10 * tolerance)


def test_sums_over_many_rows_of_bfloat16_are_taken_in_float32() -> None:
    x = draw(torch.bfloat16, 2000, 8)
    g = draw(torch.bfloat16, 2000, 8, seed=1).detach()
    scale = torch.ones(8)
    weight = torch.rand(8)
    _, mean, spread = layer_norm(x.detach(), scale, None, 1e-6)
    by_scale, by_shift = norm_scale_gradients(g, x, mean, spread, weight, None, scale)
    normalised = F.layer_norm(x.detach().double(), (8,), weight.double(), eps=1e-6)
    assert torch.allclose(by_scale.double(), (g.double() * normalised).sum(dim=0), atol=1e-3)
    assert torch.allclose(by_shift.double(), g.double().sum(dim=0), atol=1e-3)


def test_coarse_weights_take_the_scale_before_they_are_rounded() -> None:
    weight = torch.rand(64, 64).bfloat16()
    scale = 1 + torch.rand(64) / 10
    rows, offset = merged_weights(weight, None, scale, torch.zeros(64))
    assert rows.dtype == offset.dtype == torch.bfloat16
    assert torch.equal(rows, (weight.float() * scale[:, None]).bfloat16())
