"""The cosine head: logits, growing, imprinting, and a state that brings its own number of
classes.
"""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from safecl.heads.cosine import CosineHead
from safecl.randomness import generator


def head_of(classes: int, width: int, dtype: torch.dtype = torch.float32) -> CosineHead:
    head = CosineHead(width, scale=7.0).to(dtype)
    head.grow(
        torch.randn(classes, width, generator=torch.Generator().manual_seed(classes), dtype=dtype)
    )
    return head


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_logits_are_scaled_cosines(dtype: torch.dtype, tolerance: float) -> None:
    head = head_of(4, 6, dtype)
    f = np.random.default_rng(0).normal(size=(5, 6)) * 30
    w = head.weight.detach().double().numpy()
    expected = [
        [7 * sum(a * b for a, b in zip(x, y, strict=True)) for y in unit(w)] for x in unit(f)
    ]
    assert np.allclose(
        head(torch.tensor(f, dtype=dtype)).detach(), expected, rtol=tolerance, atol=tolerance
    )


def test_a_new_head_knows_no_class() -> None:
    assert CosineHead(6).classes == 0
    assert CosineHead(6)(torch.randn(3, 6)).shape == (3, 0)


def test_growing_keeps_the_old_rows_to_the_bit() -> None:
    head = head_of(3, 6)
    old = head.weight.detach().clone()
    new = torch.randn(2, 6)
    head.grow(new)
    assert head.classes == 5
    assert torch.equal(head.weight[:3], old) and torch.equal(head.weight[3:], new)
    head.grow(new[:0])
    assert head.classes == 5


def test_random_rows_fill_the_box_of_a_fresh_head_and_come_from_their_generator_alone() -> None:
    heads = [CosineHead(16) for _ in range(3)]
    before = torch.random.get_rng_state()
    for head, seed in zip(heads, (0, 0, 1), strict=True):
        head.grow_random(50, generator(seed, "head"))
    assert torch.equal(torch.random.get_rng_state(), before)
    one, same, other = (head.weight.detach() for head in heads)
    assert one.shape == (50, 16) and one.abs().max() <= 0.25 and one.std() > 0.25 / 2
    assert torch.equal(one, same) and not torch.equal(one, other)


def test_random_rows_are_appended_to_those_that_are_there() -> None:
    head = head_of(3, 6, torch.float64)
    old = head.weight.detach().clone()
    head.grow_random(2, generator(0, "head"))
    assert (
        torch.equal(head.weight[:3], old)
        and head.weight.shape == (5, 6)
        and head.weight.dtype == torch.float64
    )


@pytest.mark.parametrize("trainable", [True, False])
def test_growing_and_imprinting_leave_it_as_trainable_as_it_was(trainable: bool) -> None:
    head = head_of(2, 6).requires_grad_(trainable)
    head.grow(torch.randn(1, 6))
    assert head.weight.requires_grad is trainable
    head.observe(torch.randn(3, 6), torch.tensor([0, 1, 2]))
    head.imprint()
    assert head.weight.requires_grad is trainable and head.weight.grad_fn is None


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_an_imprinted_row_is_the_mean_unit_feature_of_its_class(
    dtype: torch.dtype, tolerance: float
) -> None:
    random = np.random.default_rng(1)
    f = random.normal(size=(20, 6)) * np.exp(random.normal(size=(20, 1)))
    y = random.integers(0, 4, 20)
    head = CosineHead(6).to(dtype)
    head.observe(torch.tensor(f, dtype=dtype), torch.tensor(y))
    head.imprint()
    expected = [
        np.mean([row for row, label in zip(unit(f), y, strict=True) if label == c], axis=0)
        for c in range(4)
    ]
    assert np.allclose(head.weight.detach(), expected, rtol=tolerance, atol=tolerance)
    assert head.counts.tolist() == np.bincount(y).tolist()


@given(st.integers(0, 2**31), st.lists(st.integers(1, 5), min_size=1, max_size=5), st.randoms())
def test_neither_the_order_nor_the_size_of_batches_matters(
    seed: int, sizes: list[int], random
) -> None:  # type: ignore[no-untyped-def]
    generator = torch.Generator().manual_seed(seed)
    f = torch.randn(sum(sizes), 4, generator=generator)
    y = torch.randint(0, 3, (sum(sizes),), generator=generator)
    whole = CosineHead(4)
    parts = CosineHead(4)
    whole.observe(f, y)
    batches = list(zip(f.split(sizes), y.split(sizes), strict=True))
    random.shuffle(batches)
    for features, targets in batches:
        parts.observe(features, targets)
    assert torch.allclose(whole.centroids(), parts.centroids(), atol=1e-6)
    assert torch.equal(whole.counts, parts.counts)


def test_more_pictures_of_a_known_class_refine_its_centroid() -> None:
    head = CosineHead(2)
    head.observe(torch.tensor([[3.0, 0.0]]), torch.tensor([0]))
    head.observe(torch.tensor([[0.0, 5.0], [0.0, 1.0]]), torch.tensor([0, 0]))
    assert torch.allclose(head.centroids(), torch.tensor([[1 / 3, 2 / 3]]))


def test_a_class_without_pictures_has_a_zero_centroid() -> None:
    head = CosineHead(2)
    head.observe(torch.ones(1, 2), torch.tensor([2]))
    head.imprint()
    assert head.classes == 3 and not head.weight[:2].any()
    assert head(torch.ones(1, 2)).isfinite().all()


def test_the_scale_is_learned_with_the_rows() -> None:
    head = head_of(3, 6)
    head(torch.randn(4, 6)).square().sum().backward()
    assert {name for name, _ in head.named_parameters()} == {"weight", "scale"}
    for parameter in head.parameters():
        assert parameter.grad is not None and parameter.grad.any()


def test_a_state_brings_its_own_number_of_classes() -> None:
    full = head_of(5, 6)
    empty = head_of(2, 6)
    full.observe(torch.randn(4, 6), torch.tensor([0, 1, 4, 2]))
    empty.load_state_dict(full.state_dict())
    f = torch.randn(3, 6)
    assert torch.equal(full(f), empty(f)) and torch.equal(full.centroids(), empty.centroids())
    with torch.no_grad():
        full.weight.zero_()
    assert empty.weight.any()  # a copy, not the same tensor
    assert empty.weight.requires_grad


def test_centroids_are_means_of_unit_features_or_of_the_features_as_they_are() -> None:
    features = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)) * 5
    targets = torch.tensor([0, 0, 0, 1, 1, 1])
    for unit, rows in ((True, features / features.norm(dim=1, keepdim=True)), (False, features)):
        head = CosineHead(4, unit=unit)
        head.observe(features, targets)
        assert torch.allclose(
            head.centroids(), torch.stack([rows[:3].mean(dim=0), rows[3:].mean(dim=0)]), atol=1e-6
        )
