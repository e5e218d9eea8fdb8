"""Gaussians with one covariance: their bytes, what they keep exactly, and points drawn from
them.
"""

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from safecl.heads.gaussians import SharedGaussians
from safecl.randomness import generator

WIDTH = 12


def draw(n: int, classes: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    y = torch.arange(n) % classes
    x = torch.randn(n, WIDTH, generator=generator(seed)) @ torch.randn(
        WIDTH, WIDTH, generator=generator(7)
    )
    return 5 * y[:, None] + x, y


def made(*batches: tuple[Tensor, Tensor]) -> SharedGaussians:
    found = SharedGaussians(batches[0][0].shape[1])
    for batch in batches:
        found.add(*batch)
    return found


def test_a_thousand_classes_take_a_fraction_of_one_packed_gram_matrix() -> None:
    """A picture of each of 20 classes; every further class takes as many bytes as these."""
    gaussians = SharedGaussians(768, 768)
    gaussians.add(torch.randn(20, 768), torch.arange(20))
    rows = sum(getattr(gaussians, name).nbytes for name in gaussians.rows)
    assert 1000 * rows / 20 + gaussians.scatter.nbytes < 11e6 < 4 * 5000 * 5001 / 2


@settings(max_examples=40)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.randoms())
def test_batches_add_up_in_any_order(sizes: list[int], random: Any) -> None:
    x, y = draw(sum(sizes))
    whole = made((x, y))
    batches = list(zip(x.split(sizes), y.split(sizes), strict=True))
    random.shuffle(batches)
    parts = made(*batches)
    assert torch.equal(parts.counts, whole.counts) and torch.allclose(
        parts.means, whole.means, atol=1e-5
    )
    assert torch.allclose(parts.covariance(), whole.covariance(), atol=1e-3)


def test_the_covariance_is_that_of_pictures_about_the_mean_of_their_class() -> None:
    x, y = draw(90)
    centred = torch.cat([x[y == c] - x[y == c].mean(dim=0) for c in range(3)])
    assert torch.allclose(made((x, y)).covariance(), centred.T @ centred / (90 - 3), atol=1e-3)


def test_points_have_the_means_and_the_covariance_and_every_class_as_many() -> None:
    gaussians = made(draw(200))
    points, classes = gaussians.sample(30_000, generator(0))
    assert torch.equal(classes, torch.arange(3).repeat_interleave(10_000))
    parts = points.split(10_000)
    for c, part in enumerate(parts):
        assert torch.allclose(part.mean(dim=0), gaussians.means[c], atol=0.15)
        assert torch.allclose(
            part.T.cov(), gaussians.covariance(), atol=0.05 * float(gaussians.covariance().max())
        )


@pytest.mark.parametrize("count", [1, 2, 5, 7])
def test_there_may_be_fewer_points_than_classes_or_more(count: int) -> None:
    gaussians = made(draw(10, classes=5))
    points, classes = gaussians.sample(count, generator(0))
    assert (
        points.shape == (count, WIDTH)
        and classes.shape == (count,)
        and len(classes.unique()) == min(count, 5)
    )


def test_offsets_are_means_over_pictures_whatever_becomes_of_their_labels() -> None:
    """Noted in two sessions, joined, corrected, dropped and merged by differences."""
    gaussians, (x, y) = SharedGaussians(WIDTH, 2), draw(10)  # 4, 3 and 3 pictures
    gaussians.add(x, y)
    gaussians.move(torch.ones(10, 2), y)
    assert torch.equal(gaussians.offsets, torch.ones(3, 2))
    gaussians.add(x[:4], torch.tensor([0, 0, 0, 4]))
    gaussians.move(torch.full((4, 2), 8.0), torch.tensor([0, 0, 0, 4]))
    assert gaussians.offsets[:, 0].tolist() == [4, 1, 1, 0, 8]
    base = copy.deepcopy(gaussians)

    gaussians.join(0, 4)  # 7 pictures and 1
    gaussians.drop_class(4)
    assert gaussians.offsets[:, 1].tolist() == [4.5, 1, 1, 0]
    old = torch.tensor([0, 0, 1, -1, -1, 2])
    new = torch.tensor([1, 5, 5, 2, 6, -1])
    gaussians.correct(x[:6], old, new)  # to known classes, to new ones; two come in, and one leaves
    assert torch.equal(gaussians.offsets[:, 0], torch.tensor([4.5, 1 + 3.5 / 3, 1, 0, 0, 2.75, 0]))

    now = copy.deepcopy(base)
    mine = copy.deepcopy(base)
    now.add(x[:4], torch.tensor([1, 1, 1, 5]))
    now.move(torch.full((4, 2), 6.0), torch.tensor([1, 1, 1, 5]))
    mine.add(x[:3], torch.tensor([1, 1, 5]))
    mine.move(torch.full((3, 2), 3.0), torch.tensor([1, 1, 5]))
    mine.merge(now, base, torch.tensor([0, 1, 2, 3, 4, 6]))
    assert torch.allclose(mine.offsets[:, 0], torch.tensor([4, (3 + 18 + 6) / 8, 1, 0, 8, 3, 6]))

    other = SharedGaussians(WIDTH, 2)
    other.load_state_dict(mine.state_dict())
    assert torch.equal(other.offsets, mine.offsets)
    with pytest.raises(ValueError, match="of several sizes"):
        other.load_state_dict({**mine.state_dict(), "offsets": mine.offsets[:2]})


@pytest.mark.parametrize("counts", [(0, 0), (3, 0), (0, 3), (3, 2), (1, 1)])
def test_two_classes_that_are_joined_have_the_moments_of_all_their_pictures(
    counts: tuple[int, int],
) -> None:
    """Also where all pictures of one of them, or of both, have been taken out."""
    x = torch.cat([draw(9)[0], draw(3, seed=1)[0]])
    y = torch.tensor([0] * 5 + [1] * 4 + [2] * 3)
    gaussians = SharedGaussians(WIDTH, 2)
    gaussians.add(x, y)
    gaussians.move(y[:, None].expand(-1, 2) + 1.0, y)
    ranks = torch.cat([torch.arange(n) for n in (5, 4, 3)])
    left = torch.where(y == 2, True, ranks < torch.tensor([*counts, 3])[y])
    gaussians.correct(x[~left], y[~left], torch.full_like(y[~left], -1))
    gaussians.join(0, 1)
    expected = made((x[left], y[left].clamp(min=1)))
    assert gaussians.counts.tolist() == [sum(counts), 0, 3]
    assert torch.allclose(gaussians.means[0], expected.means[1], atol=1e-5)
    assert torch.allclose(gaussians.covariance(), expected.covariance(), atol=1e-4)
    if sum(counts):
        assert gaussians.offsets[0, 0] == pytest.approx((counts[0] + 2 * counts[1]) / sum(counts))
    assert all(value.isfinite().all() for value in gaussians.state_dict().values())


def test_with_one_picture_a_class_the_points_are_the_pictures() -> None:
    gaussians = made((torch.eye(3, WIDTH), torch.arange(3)))
    assert torch.allclose(
        gaussians.sample(6, generator(0))[0], torch.eye(3, WIDTH).repeat_interleave(2, dim=0)
    )


def test_fewer_pictures_than_dimensions_vary_where_the_pictures_do() -> None:
    x, y = draw(6, classes=2)
    centred = torch.cat([x[y == c] - x[y == c].mean(dim=0) for c in range(2)])
    gaussians = made((x, y))
    points = gaussians.sample(40, generator(0))[0] - gaussians.means.repeat_interleave(20, dim=0)
    basis = torch.linalg.svd(centred, full_matrices=False).Vh[:4]
    assert torch.allclose(points @ basis.T @ basis, points, atol=0.05)


@pytest.mark.parametrize("gone", [0, 1, 3])
@pytest.mark.parametrize("each", [1, 2, 15], ids=["one picture", "two", "many"])
def test_a_class_whose_pictures_have_left_is_dropped_as_if_it_had_never_come(
    gone: int, each: int
) -> None:
    x, y = draw(4 * each + 8, classes=4)
    x[y == gone] *= 3  # another spread than the rest
    found = made((x, y))
    own = y == gone
    found.correct(x[own], y[own], torch.full_like(y[own], -1))
    found.drop_class(gone)
    expected = made((x[~own], y[~own] - (y[~own] > gone).long()))
    assert torch.equal(found.counts, expected.counts)
    assert torch.equal(found.means, expected.means)
    scale = float(expected.covariance().abs().max())
    assert torch.allclose(found.covariance(), expected.covariance(), atol=1e-5 * scale)
    counted = made((x, y))
    counted.drop_class(gone)
    assert not torch.allclose(counted.covariance(), expected.covariance(), atol=1e-1 * scale)


def test_a_class_that_is_dropped_leaves_the_covariance_as_it_was() -> None:
    gaussians = made(draw(90))
    before = gaussians.covariance()
    means = gaussians.means.clone()
    gaussians.drop_class(1)
    assert torch.allclose(gaussians.covariance(), before, rtol=1e-4, atol=1e-4)
    assert torch.equal(gaussians.means, means[[0, 2]]) and gaussians.counts.tolist() == [30, 30]


def test_a_state_brings_its_own_classes_and_goes_on_as_if_never_saved() -> None:
    one = made(draw(30))
    other = SharedGaussians(WIDTH)
    other.load_state_dict(one.state_dict())
    for each in (one, other):
        each.add(*draw(12, classes=4, seed=5))
    assert all(
        torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items()
    )
