"""L_f2s and L_s2f of Eq. (7)."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from safecl.heads.cosine import CosineHead
from safecl.losses import crossing

Features = Callable[..., tuple[np.ndarray, ...]]
N = 7
D = 5
OLD = 3
CLASSES = 4


@pytest.fixture
def batch(features: Features) -> tuple[np.ndarray, ...]:
    """Features, prototypes of the old classes, weights of the other's head; and labels."""
    labels = np.random.default_rng(1).integers(0, CLASSES, N)
    return *features(0, (N, D), (OLD, D), (CLASSES, D)), labels


def terms(brute: Any, batch: tuple[np.ndarray, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Cross-entropy of every feature and of every prototype under a linear classifier."""
    f, prototypes, weight, labels = batch
    return brute.cross_entropy(f @ weight.T, labels), brute.cross_entropy(
        prototypes @ weight.T, np.arange(OLD)
    )


def test_two_means_adds_the_batch_and_the_prototypes(
    brute: Any, batch: tuple[np.ndarray, ...], dtype: torch.dtype, close: Callable[..., bool]
) -> None:
    f, prototypes, weight = (torch.tensor(part, dtype=dtype) for part in batch[:3])
    found = crossing(lambda x: x @ weight.T, f, torch.tensor(batch[3]), prototypes)
    current, old = terms(brute, batch)
    assert close(found, current.sum() / N + old.sum() / OLD)


def test_concat_takes_one_mean_over_all_items(
    brute: Any, batch: tuple[np.ndarray, ...], dtype: torch.dtype, close: Callable[..., bool]
) -> None:
    f, prototypes, weight = (torch.tensor(part, dtype=dtype) for part in batch[:3])
    found = crossing(lambda x: x @ weight.T, f, torch.tensor(batch[3]), prototypes, "concat")
    current, old = terms(brute, batch)
    assert close(found, (current.sum() + old.sum()) / (N + OLD))


@pytest.mark.parametrize("pooling", ["two_means", "concat"])
def test_without_old_classes_it_is_the_cross_entropy_of_the_batch(
    pooling: Any,
    brute: Any,
    batch: tuple[np.ndarray, ...],
    dtype: torch.dtype,
    close: Callable[..., bool],
) -> None:
    f, prototypes, weight = (torch.tensor(part, dtype=dtype) for part in batch[:3])
    found = crossing(lambda x: x @ weight.T, f, torch.tensor(batch[3]), prototypes[:0], pooling)
    assert close(found, terms(brute, batch)[0].mean())


@pytest.mark.parametrize("pooling", ["two_means", "concat"])
def test_the_gradient_reaches_features_prototypes_and_classifier(
    pooling: Any, batch: tuple[np.ndarray, ...]
) -> None:
    f, prototypes, weight = (
        torch.tensor(part, dtype=torch.float32, requires_grad=True) for part in batch[:3]
    )
    head = CosineHead(D)
    head.grow(weight.detach())
    crossing(head, f, torch.tensor(batch[3]), prototypes, pooling).backward()
    for reached in (f, prototypes, head.weight, head.scale):
        assert reached.grad is not None and reached.grad.any()


@pytest.mark.parametrize("pooling", ["two_means", "concat"])
def test_zero_features_and_zero_prototypes_are_finite(pooling: Any) -> None:
    head = CosineHead(D)
    head.grow(torch.zeros(CLASSES, D))
    f = torch.zeros(1, D, requires_grad=True)
    loss = crossing(head, f, torch.tensor([CLASSES - 1]), torch.zeros(OLD, D), pooling)
    loss.backward()
    assert loss.isfinite() and f.grad is not None and f.grad.isfinite().all()
