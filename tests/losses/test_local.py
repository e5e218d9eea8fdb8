"""Losses over one session's classes: cross-entropy of logits whose others are masked to −∞, CosFace
by its formula.
"""

import math

import pytest
import torch
import torch.nn.functional as F

from safecl.losses import local_cosface, local_cross_entropy


def test_it_is_the_cross_entropy_of_masked_logits_and_the_others_get_no_gradient() -> None:
    logits = torch.randn(6, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    targets = torch.tensor([1, 4, 4, 1, 3, 1])
    current = torch.tensor([1, 3, 4])
    found = local_cross_entropy(logits, targets, current)
    masked = logits.detach().clone()
    masked[:, [0, 2]] = -torch.inf
    assert torch.allclose(found, F.cross_entropy(masked, targets))
    (gradient,) = torch.autograd.grad(found, logits)
    assert [bool(column.any()) for column in gradient.T] == [False, True, False, True, True]


@pytest.mark.parametrize("scale, margin", [(20.0, 0.0), (20.0, 0.3), (1.0, 0.1)])
def test_cosface_is_its_formula_on_the_sessions_classes(scale: float, margin: float) -> None:
    cosines = torch.rand(4, 5, generator=torch.Generator().manual_seed(0)) * 2 - 1
    targets = torch.tensor([4, 1, 3, 4])
    current = torch.tensor([1, 3, 4])
    total = 0.0
    for row, y in zip(cosines.tolist(), targets.tolist(), strict=True):
        right = math.exp(scale * (row[y] - margin))
        total -= math.log(
            right / (right + sum(math.exp(scale * row[j]) for j in current.tolist() if j != y))
        )
    found = local_cosface(scale * cosines, targets, current, scale, margin)
    assert float(found) == pytest.approx(total / 4, rel=1e-5)
    if not margin:
        assert torch.allclose(found, local_cross_entropy(scale * cosines, targets, current))
