"""Random features, and brute-force arithmetic on them: loops over numbers, in float64."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

Array = np.ndarray


class Brute:
    """The words of the equations, spelled out."""

    @staticmethod
    def unit(rows: Array) -> Array:
        return np.array([row / max(np.sqrt(sum(v * v for v in row)), 1e-12) for row in rows])

    @staticmethod
    def cosine(a: Array, b: Array) -> float:
        dot = sum(x * y for x, y in zip(a, b, strict=True))
        return float(dot / np.sqrt(sum(x * x for x in a)) / np.sqrt(sum(y * y for y in b)))

    @staticmethod
    def softmax(row: Array) -> Array:
        e = np.exp(row - row.max())
        return e / e.sum()

    @classmethod
    def cross_entropy(cls, logits: Array, labels: Array) -> Array:
        """One value an item."""
        return np.array(
            [-np.log(cls.softmax(row)[label]) for row, label in zip(logits, labels, strict=True)]
        )


@pytest.fixture(scope="session")
def brute() -> type[Brute]:
    return Brute


@pytest.fixture(scope="session")
def features() -> Callable[..., tuple[Array, ...]]:
    """``features(seed, (n, d), …)``: float64 arrays with rows of very different lengths."""

    def draw(seed: int, *shapes: tuple[int, ...]) -> tuple[Array, ...]:
        random = np.random.default_rng(seed)
        return tuple(
            random.normal(0.3, 1, shape) * np.exp(random.normal(0, 1, (shape[0], 1)))
            for shape in shapes
        )

    return draw


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"], scope="session")
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


@pytest.fixture(scope="session")
def close(dtype: torch.dtype) -> Callable[[torch.Tensor, Array | float], bool]:
    """Equal to 1e-5 in float32 and to 1e-10 in float64."""
    tolerance = 1e-5 if dtype == torch.float32 else 1e-10

    def check(value: torch.Tensor, expected: Array | float) -> bool:
        assert value.dtype == dtype
        return bool(np.allclose(value.detach().numpy(), expected, rtol=tolerance, atol=tolerance))

    return check
