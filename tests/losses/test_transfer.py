"""L_diag and L_rdn over the cross-correlation M of Eq. (1) to (3)."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import normalize

from safecl.losses import cross_correlation, diagonal, redundancy

Features = Callable[..., tuple[np.ndarray, ...]]
Close = Callable[[torch.Tensor, Any], bool]
SHAPES = [(6, 4), (2, 5), (1, 3), (7, 1)]


def brute_correlation(ptm: np.ndarray, slow: np.ndarray) -> np.ndarray:
    n, d = ptm.shape
    return np.array(
        [[sum(ptm[k, i] * slow[k, j] for k in range(n)) / n for j in range(d)] for i in range(d)]
    )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_correlation_is_the_printed_sum(
    shape: tuple[int, int], features: Features, brute: Any, dtype: torch.dtype, close: Close
) -> None:
    g, f = features(0, shape, shape)
    found = cross_correlation(torch.tensor(g, dtype=dtype), torch.tensor(f, dtype=dtype))
    assert close(found, brute_correlation(brute.unit(g), brute.unit(f)))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_diagonal_and_redundancy_are_the_printed_sums(
    shape: tuple[int, int], features: Features, dtype: torch.dtype, close: Close
) -> None:
    (m,) = features(3, (shape[1], shape[1]))
    d = len(m)
    matrix = torch.tensor(m, dtype=dtype)
    diag = sum((1 - m[i, i]) ** 2 for i in range(d))
    rdn = sum(m[i, j] ** 2 for i in range(d) for j in range(d) if i != j)
    assert close(diagonal(matrix), diag / d)
    assert close(diagonal(matrix, "sum"), diag)
    assert close(redundancy(matrix), rdn / max(d * (d - 1), 1))
    assert close(redundancy(matrix, "sum"), rdn)


@given(st.integers(0, 2**31), st.integers(1, 9), st.integers(1, 9))
def test_unit_features_make_the_trace_a_mean_cosine_and_the_norm_a_mean_of_products(
    seed: int, n: int, d: int
) -> None:
    random = np.random.default_rng(seed)
    g, f = (normalize(torch.from_numpy(random.normal(size=(n, d))), dim=1) for _ in range(2))
    m = cross_correlation(g, f)
    cosines = torch.nn.functional.cosine_similarity(g, f, dim=1)
    assert torch.allclose(m.trace(), cosines.mean(), atol=1e-12)
    assert m.trace() <= 1 + 1e-12
    products = (f @ f.T) * (g @ g.T)
    assert torch.allclose(m.square().sum(), products.sum() / n**2, atol=1e-12)
    assert m.square().sum() <= 1 + 1e-12
    # L_diag = 1 − 2/d · mean cosine + 1/d Σ M_ii², so it cannot pull at the mean cosine with more
    # than 2/d
    expected = 1 - 2 / d * cosines.mean() + m.diagonal().square().sum() / d
    assert torch.allclose(diagonal(m), expected, atol=1e-12)
    # and L_rdn is at most 1 / (d(d−1))
    assert redundancy(m) * max(d * (d - 1), 1) <= 1 + 1e-12


@given(st.integers(0, 2**31), st.floats(1e-3, 1e3))
def test_the_length_of_a_feature_means_nothing_to_the_correlation(seed: int, length: float) -> None:
    random = np.random.default_rng(seed)
    g, f = (torch.from_numpy(random.normal(size=(4, 6))) for _ in range(2))
    assert torch.allclose(cross_correlation(g * length, f), cross_correlation(g, f), atol=1e-12)
    assert torch.allclose(cross_correlation(g, f / length), cross_correlation(g, f), atol=1e-12)


@pytest.mark.parametrize("kind", ["one picture", "zeros", "all the same"])
def test_degenerate_batches_give_finite_losses_and_gradients(kind: str) -> None:
    g = {
        "one picture": torch.randn(1, 5),
        "zeros": torch.zeros(4, 5),
        "all the same": torch.ones(4, 5),
    }[kind]
    f = g.clone().requires_grad_()
    m = cross_correlation(g, f)
    loss = diagonal(m) + redundancy(m)
    loss.backward()
    assert loss.isfinite() and f.grad is not None and f.grad.isfinite().all()
