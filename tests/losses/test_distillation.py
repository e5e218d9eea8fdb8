"""FA, LA and SSA: the paper's alternatives to the transfer loss."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import normalize

from safecl.losses import alignment as feature_alignment
from safecl.losses import covariance_alignment, logit_alignment

Features = Callable[..., tuple[np.ndarray, ...]]
Close = Callable[..., bool]


def brute_covariance(rows: np.ndarray) -> np.ndarray:
    n, d = rows.shape
    mean = rows.sum(axis=0) / n
    return np.array(
        [
            [sum((x[i] - mean[i]) * (x[j] - mean[j]) for x in rows) / n for j in range(d)]
            for i in range(d)
        ]
    )


def test_feature_alignment_is_one_minus_the_cosine(
    features: Features, brute: Any, dtype: torch.dtype, close: Close
) -> None:
    g, f = features(0, (6, 4), (6, 4))
    expected = np.mean([1 - brute.cosine(a, b) for a, b in zip(g, f, strict=True)])
    assert close(
        feature_alignment(torch.tensor(g, dtype=dtype), torch.tensor(f, dtype=dtype)), expected
    )


@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(1, 6))
def test_feature_alignment_is_half_the_squared_distance_on_the_sphere(
    seed: int, n: int, d: int
) -> None:
    random = np.random.default_rng(seed)
    g, f = (torch.from_numpy(random.normal(size=(n, d))) for _ in range(2))
    distance = (normalize(g, dim=1) - normalize(f, dim=1)).square().sum(dim=1).mean()
    assert torch.allclose(2 * feature_alignment(g, f), distance, atol=1e-10)


def test_logit_alignment_is_the_divergence_of_softened_predictions(
    features: Features, brute: Any, dtype: torch.dtype, close: Close
) -> None:
    g, f, p = features(1, (6, 4), (6, 4), (3, 4))
    for scale, temperature in ((10.0, 2.0), (4.0, 1.0)):
        total = 0.0
        for a, b in zip(g, f, strict=True):
            teacher, student = (
                brute.softmax(np.array([scale * brute.cosine(x, row) / temperature for row in p]))
                for x in (a, b)
            )
            total += sum(t * np.log(t / s) for t, s in zip(teacher, student, strict=True))
        found = logit_alignment(
            *(torch.tensor(x, dtype=dtype) for x in (g, f, p)), scale, temperature
        )
        assert close(found, temperature**2 * total / len(g))


def test_covariance_alignment_is_a_quarter_of_the_squared_frobenius_distance(
    features: Features, brute: Any, dtype: torch.dtype, close: Close
) -> None:
    g, f = features(2, (6, 4), (6, 4))
    difference = brute_covariance(brute.unit(g)) - brute_covariance(brute.unit(f))
    expected = sum(v * v for v in difference.flat) / 4
    assert close(
        covariance_alignment(torch.tensor(g, dtype=dtype), torch.tensor(f, dtype=dtype)), expected
    )


@pytest.mark.parametrize("loss", ["fa", "la", "ssa"])
def test_a_slow_learner_that_equals_the_ptm_pays_nothing(loss: str, features: Features) -> None:
    g, p = (torch.tensor(x) for x in features(3, (6, 4), (3, 4)))
    value = {
        "fa": lambda: feature_alignment(g, g),
        "la": lambda: logit_alignment(g, g, p),
        "ssa": lambda: covariance_alignment(g, g),
    }[loss]()
    assert abs(float(value)) < 1e-12


@pytest.mark.parametrize("loss", ["fa", "la", "ssa"])
@pytest.mark.parametrize("kind", ["one picture", "zeros"])
def test_degenerate_batches_give_finite_losses_and_gradients(loss: str, kind: str) -> None:
    g = torch.ones(1, 4) if kind == "one picture" else torch.zeros(3, 4)
    f = (2 * g).requires_grad_()
    prototypes = torch.zeros(2, 4) if kind == "zeros" else torch.eye(2, 4)
    value = {
        "fa": lambda: feature_alignment(g, f),
        "la": lambda: logit_alignment(g, f, prototypes),
        "ssa": lambda: covariance_alignment(g, f),
    }[loss]()
    value.backward()
    assert value.isfinite() and f.grad is not None and f.grad.isfinite().all()
