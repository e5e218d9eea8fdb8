"""Class means and covariances: sums in any order, against numpy; samples with the moments they are
drawn from.
"""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from safecl.heads.gaussians import CLASSES_AT_A_TIME, ClassGaussians
from safecl.randomness import generator
from tests.conftest import raises

WIDTH = 5


def draw(n: int, classes: int = 3, seed: int = 0, mean: float = 0.0) -> tuple[Tensor, Tensor]:
    """Correlated float32 features with another covariance in every class, and their classes."""
    random = np.random.default_rng(seed)
    y = random.permutation(np.arange(n) % classes)
    mixing = np.random.default_rng(1).normal(size=(classes, WIDTH, WIDTH))
    x = mean + y[:, None] + np.einsum("nij,nj->ni", mixing[y], random.normal(size=(n, WIDTH)))
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


def gaussians_of(*batches: tuple[Tensor, Tensor]) -> ClassGaussians:
    gaussians = ClassGaussians(WIDTH)
    for batch in batches:
        gaussians.add(*batch)
    return gaussians


def near(found: Any, expected: Any, tolerance: float = 1e-5) -> bool:
    """Equal to a share of the largest number."""
    return np.allclose(found, expected, rtol=0, atol=tolerance * np.abs(np.asarray(expected)).max())


def pooled(x: Tensor, y: Tensor) -> np.ndarray:
    """The within-class covariance of all classes together."""
    parts = [x.double().numpy()[y.numpy() == c] for c in y.unique().tolist()]
    return sum((part - part.mean(axis=0)).T @ (part - part.mean(axis=0)) for part in parts) / (
        len(x) - len(parts)
    )


# -- sums ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mean", [0.0, 1000.0])
@pytest.mark.parametrize("batch", [1, 7, 60])
def test_means_and_covariances_are_those_of_all_pictures_together(batch: int, mean: float) -> None:
    x, y = draw(60, mean=mean)
    gaussians = gaussians_of(*zip(x.split(batch), y.split(batch), strict=True))
    assert gaussians.counts.tolist() == [20, 20, 20] and gaussians.classes == 3
    for c in range(3):
        own = x[y == c].double().numpy()
        assert near(gaussians.means[c], own.mean(axis=0), 1e-6)
        assert near(gaussians.covariances([c], 0)[0], np.cov(own.T))
        assert near(gaussians.covariances([c], 0.5)[0], np.cov(own.T) + 0.5 * np.eye(WIDTH))


@settings(max_examples=40)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.randoms(), st.integers(0, 1000))
def test_batches_and_sessions_add_up_in_any_order(sizes: list[int], random: Any, mean: int) -> None:
    x, y = draw(sum(sizes), mean=float(mean))
    whole = gaussians_of((x, y))
    batches = list(zip(x.split(sizes), y.split(sizes), strict=True))
    random.shuffle(batches)
    summed = gaussians_of(*batches)
    assert torch.equal(summed.counts, whole.counts)
    assert torch.allclose(summed.means, whole.means, rtol=1e-6, atol=1e-5)
    for c in range(whole.classes):
        found, expected = (each.covariances([c], 0)[0] for each in (summed, whole))
        assert torch.allclose(
            found, expected, rtol=0, atol=1e-5 * max(1.0, float(expected.abs().max()))
        )


def test_the_kept_numbers_are_half_a_matrix_a_class_and_all_float32() -> None:
    state = gaussians_of(draw(30)).state_dict()
    assert state["scatter"].numel() == 3 * WIDTH * (WIDTH + 1) // 2
    assert {value.dtype for value in state.values()} == {torch.float32, torch.int64}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_features_that_are_not_finite_are_refused_in_a_sentence(value: float) -> None:
    with raises("features.not-finite"):
        ClassGaussians(WIDTH).add(torch.full((2, WIDTH), value), torch.tensor([0, 1]))


# -- few pictures ----------------------------------------------------------------------------------


def test_a_class_of_one_picture_has_the_covariance_of_the_others() -> None:
    x, y = draw(30)
    gaussians = gaussians_of((x, y), (torch.ones(1, WIDTH), torch.tensor([3])))
    assert near(gaussians.covariances([3], 0)[0], pooled(x, y))
    assert torch.equal(gaussians.means[3], torch.ones(WIDTH))


def test_where_every_class_has_one_picture_only_the_diagonal_is_left() -> None:
    gaussians = gaussians_of((torch.eye(3, WIDTH), torch.arange(3)))
    assert torch.allclose(gaussians.covariances([1], 0.25)[0], 0.25 * torch.eye(WIDTH).double())
    features, _ = gaussians.sample(1000, generator(0), ridge=0.25)
    assert float(
        (features - gaussians.means.repeat_interleave(1000, dim=0)).std()
    ) == pytest.approx(0.5, rel=0.05)


def test_a_class_without_pictures_has_no_samples() -> None:
    gaussians = gaussians_of((torch.ones(2, WIDTH), torch.tensor([0, 2])))
    assert gaussians.classes == 3
    _, targets = gaussians.sample(2, generator(0))
    assert targets.tolist() == [0, 0, 2, 2]


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("ridge", [0.0, 1e-4])
def test_a_singular_covariance_can_be_sampled_and_keeps_its_directions(
    scale: float, ridge: float
) -> None:
    x = scale * torch.randn(2, 40, generator=generator(0))
    gaussians = ClassGaussians(40)
    gaussians.add(x, torch.tensor([0, 0]))
    features, _ = gaussians.sample(500, generator(1), ridge=ridge)
    direction = torch.nn.functional.normalize(x[1] - x[0], dim=0)
    centred = features - x.mean(dim=0)
    across = (centred - (centred @ direction)[:, None] * direction).square().mean().sqrt()
    assert features.isfinite().all() and across <= max(0.02 * scale, 1.1 * ridge**0.5)


def test_identical_pictures_are_sampled_as_they_are() -> None:
    gaussians = gaussians_of((torch.ones(4, WIDTH), torch.zeros(4, dtype=torch.long)))
    assert torch.equal(gaussians.sample(3, generator(0), ridge=0)[0], torch.ones(3, WIDTH))


# -- samples ---------------------------------------------------------------------------------------


def test_samples_have_the_means_and_covariances_they_are_drawn_from() -> None:
    x, y = draw(90)
    gaussians = gaussians_of((x, y))
    features, targets = gaussians.sample(40_000, generator(0), scale=[1.0, 0.9, 2.0], ridge=0.3)
    assert targets.tolist() == [c for c in range(3) for _ in range(40_000)]
    for c, factor in enumerate((1.0, 0.9, 2.0)):
        own = features[targets == c]
        assert near(own.mean(dim=0), factor * gaussians.means[c], 0.05)
        assert near(own.T.cov(), gaussians.covariances([c], 0.3)[0], 0.05)


def test_a_sample_comes_from_its_generator_alone() -> None:
    gaussians = gaussians_of(draw(30))
    before = torch.random.get_rng_state()
    one, same, other = (gaussians.sample(4, generator(seed))[0] for seed in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(one, same) and not torch.equal(one, other)


def test_a_sample_does_not_depend_on_how_many_classes_are_factored_at_a_time() -> None:
    """The first classes alone, and before others that do not go with them."""
    x, y = draw(160, classes=20)
    assert int(y.max()) + 1 > CLASSES_AT_A_TIME
    whole, _ = gaussians_of((x, y)).sample(30, generator(0))
    few = y < 5
    part, _ = gaussians_of((x[few], y[few])).sample(30, generator(0))
    assert torch.allclose(part, whole[: 5 * 30], atol=1e-6)


def test_every_class_may_have_a_scale_of_its_own_or_no_samples() -> None:
    gaussians = gaussians_of(draw(30))
    features, targets = gaussians.sample(2, generator(0), scale=torch.tensor([0.0, 1.0, 1.0]))
    assert targets.tolist() == [0, 0, 1, 1, 2, 2] and features.shape == (6, WIDTH)
    plain, _ = gaussians.sample(2, generator(0))
    assert torch.allclose(plain[:2] - features[:2], gaussians.means[0], atol=1e-5)
    assert torch.equal(plain[2:], features[2:])
    with pytest.raises(ValueError):
        gaussians.sample(2, generator(0), scale=[1.0])
    assert gaussians.sample(0, generator(0))[0].shape == (0, WIDTH)
    assert ClassGaussians(WIDTH).sample(3, generator(0))[0].shape == (0, WIDTH)


# -- drift and state -------------------------------------------------------------------------------


def test_every_class_may_have_an_offset_of_its_own_and_goes_on_adding_from_there() -> None:
    x, y = draw(60)
    offsets = torch.arange(3.0)[:, None].expand(3, WIDTH)
    moved = gaussians_of((x[:40], y[:40]))
    moved.shift(offsets)
    moved.add(x[40:] + offsets[y[40:]], y[40:])
    expected = gaussians_of((x + offsets[y], y))
    assert torch.allclose(moved.means, expected.means, atol=1e-5)
    assert all(
        near(moved.covariances([c], 1e-4)[0], expected.covariances([c], 1e-4)[0]) for c in range(3)
    )


def test_an_offset_that_is_not_finite_is_refused() -> None:
    with raises("features.not-finite"):
        gaussians_of(draw(9)).shift(torch.full((3, WIDTH), float("nan")))


@pytest.mark.parametrize("there", [0, 2, 3, 5])
def test_a_state_brings_its_own_classes_and_goes_on_as_if_never_saved(there: int) -> None:
    full = gaussians_of(draw(30))
    other = gaussians_of(*([draw(20, classes=there, seed=3)] if there else []))
    other.load_state_dict({name: value.clone() for name, value in full.state_dict().items()})
    for each in (full, other):
        each.add(*draw(12, classes=4, seed=5))
    assert other.classes == 4
    for name, value in full.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])
