"""L_cos of Eq. (6)."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from safecl.losses import alignment

Features = Callable[..., tuple[np.ndarray, ...]]


def test_alignment_is_one_minus_the_cosine(
    features: Features, brute: Any, dtype: torch.dtype, close: Callable[..., bool]
) -> None:
    for shape in ((6, 4), (1, 3)):
        g, f = features(0, shape, shape)
        terms = [1 - brute.cosine(a, b) for a, b in zip(g, f, strict=True)]
        teacher = torch.tensor(g, dtype=dtype)
        fast = torch.tensor(f, dtype=dtype)
        assert close(alignment(teacher, fast), sum(terms) / len(terms))
        assert close(alignment(teacher, fast, "sum"), sum(terms))


@given(st.integers(0, 2**31), st.floats(1e-2, 1e2))
def test_alignment_lies_between_equal_and_opposite_directions(seed: int, length: float) -> None:
    g = torch.from_numpy(np.random.default_rng(seed).normal(size=(4, 6)))
    assert torch.allclose(alignment(g, g * length), torch.zeros((), dtype=g.dtype), atol=1e-12)
    assert torch.allclose(alignment(g, -g * length), torch.full((), 2, dtype=g.dtype), atol=1e-12)


def test_zero_features_are_finite_and_have_finite_gradients() -> None:
    f = torch.zeros(3, 4, requires_grad=True)
    loss = alignment(torch.zeros(3, 4), f)
    loss.backward()
    assert loss.isfinite() and f.grad is not None and f.grad.isfinite().all()
