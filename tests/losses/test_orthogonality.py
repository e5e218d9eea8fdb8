"""The penalty is 0 for orthonormal rows and the mean squared entry of V Vᵀ − I otherwise."""

import torch

from safecl.losses import orthogonality


def test_orthonormal_rows_cost_nothing_and_others_their_distance() -> None:
    square = torch.linalg.qr(torch.randn(5, 5, generator=torch.Generator().manual_seed(0))).Q
    assert float(orthogonality(square[:3])) < 1e-12
    assert torch.isclose(orthogonality(2 * square[:3]), torch.tensor(3.0), atol=1e-5)  # three entries of 9 in 9
    assert torch.isclose(orthogonality(torch.stack([square[:3], 2 * square[:3]])), torch.tensor(3.0), atol=1e-5)
