"""CosFace against its formula."""

import math

import pytest
import torch
import torch.nn.functional as F

from safecl.losses import local_cosface


@pytest.mark.parametrize("scale, margin", [(20.0, 0.0), (20.0, 0.3), (1.0, 0.1)])
def test_it_is_the_formula(scale: float, margin: float) -> None:
    cosines = torch.rand(4, 3, generator=torch.Generator().manual_seed(0)) * 2 - 1
    targets, total = torch.tensor([2, 0, 1, 2]), 0.0
    for row, y in zip(cosines.tolist(), targets.tolist(), strict=True):
        right = math.exp(scale * (row[y] - margin))
        total -= math.log(right / (right + sum(math.exp(scale * c) for j, c in enumerate(row) if j != y)))
    found = local_cosface(scale * cosines, targets, torch.arange(3), scale, margin)
    assert float(found) == pytest.approx(total / 4, rel=1e-5)
    if not margin:
        assert torch.allclose(found, F.cross_entropy(scale * cosines, targets))
