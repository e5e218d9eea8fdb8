"""Aggregation of the logits of two learners: Eq. (11)."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from safecl.methods.ensemble import by_entropy, entropy, weights

LOGITS = arrays.arrays(np.float64, (3, 4), elements=st.floats(-50, 50))
PRECISIONS = [(torch.float32, 1e-5), (torch.float64, 1e-10)]


def brute_entropy(row: np.ndarray) -> float:
    p = np.exp(row - row.max())
    p = p / p.sum()
    return float(-sum(v * np.log(v) for v in p if v > 0))


def brute_weights(slow: np.ndarray, fast: np.ndarray, gamma: float) -> np.ndarray:
    h = np.array(
        [
            [-gamma * brute_entropy(a), -gamma * brute_entropy(b)]
            for a, b in zip(slow, fast, strict=True)
        ]
    )
    e = np.exp(h - h.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("gamma", [0.0, 1.0, 10.0])
def test_entropy_weights_and_aggregate_are_the_printed_ones(
    dtype: torch.dtype, tolerance: float, gamma: float
) -> None:
    random = np.random.default_rng(0)
    slow = random.normal(0, 3, (6, 5))
    fast = random.normal(0, 3, (6, 5))
    a = torch.tensor(slow, dtype=dtype)
    b = torch.tensor(fast, dtype=dtype)
    alpha = brute_weights(slow, fast, gamma)
    for found, expected in (
        (entropy(a), [brute_entropy(row) for row in slow]),
        (weights(a, b, gamma), alpha),
        (by_entropy(a, b, gamma), alpha[:, :1] * slow + alpha[:, 1:] * fast),
    ):
        assert found.dtype == dtype
        assert np.allclose(found, expected, rtol=tolerance, atol=tolerance)


@given(LOGITS, LOGITS)
def test_without_gamma_the_aggregate_is_the_plain_mean_and_half_the_sum(
    slow: np.ndarray, fast: np.ndarray
) -> None:
    a = torch.from_numpy(slow)
    b = torch.from_numpy(fast)
    mean = by_entropy(a, b, 0.0)
    both = a + b
    assert torch.allclose(mean, (a + b) / 2, atol=1e-12)
    top = both.topk(2, dim=1).values
    clear = top[:, 0] - top[:, 1] > 1e-9
    assert torch.equal(mean.argmax(dim=1)[clear], both.argmax(dim=1)[clear])


@given(LOGITS, LOGITS)
def test_a_large_gamma_picks_the_learner_of_lower_entropy(
    slow: np.ndarray, fast: np.ndarray
) -> None:
    a = torch.from_numpy(slow)
    b = torch.from_numpy(fast)
    clear = (entropy(a) - entropy(b)).abs() > 1e-6
    chosen = torch.where((entropy(a) < entropy(b))[:, None], a, b)
    assert torch.allclose(by_entropy(a, b, 1e9)[clear], chosen[clear], atol=1e-9)


@given(LOGITS, LOGITS, st.floats(0, 100))
def test_the_weights_are_a_distribution_and_do_not_depend_on_which_is_called_slow(
    slow: np.ndarray, fast: np.ndarray, gamma: float
) -> None:
    a = torch.from_numpy(slow)
    b = torch.from_numpy(fast)
    alpha = weights(a, b, gamma)
    assert torch.allclose(alpha.sum(dim=1), torch.ones(3, dtype=torch.float64))
    assert torch.allclose(alpha, weights(b, a, gamma).flip(1), atol=1e-12)
    assert torch.allclose(by_entropy(a, b, gamma), by_entropy(b, a, gamma), atol=1e-9)


@given(LOGITS, st.floats(0, 100))
def test_equal_learners_agree_with_their_aggregate(logits: np.ndarray, gamma: float) -> None:
    z = torch.from_numpy(logits)
    assert torch.allclose(by_entropy(z, z, gamma), z, atol=1e-12)


@given(LOGITS, st.floats(-20, 20))
def test_entropy_lies_between_certainty_and_chance_and_ignores_a_shift(
    logits: np.ndarray, shift: float
) -> None:
    z = torch.from_numpy(logits)
    h = entropy(z)
    assert (h >= -1e-12).all() and (h <= np.log(4) + 1e-12).all()
    assert torch.allclose(h, entropy(z + shift), atol=1e-9)


def test_certainty_to_the_last_bit_is_finite() -> None:
    certain = torch.tensor([[1e4, 0.0, -1e4]])
    assert entropy(certain) == 0
    assert by_entropy(certain, -certain, 100.0).isfinite().all()


def test_one_class_is_certain() -> None:
    assert torch.equal(entropy(torch.randn(3, 1)), torch.zeros(3))
