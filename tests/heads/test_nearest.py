"""Distances from class means against numpy, and against Gaussians without the picture."""

import copy

import numpy as np
import pytest
import torch

from safecl.heads.gaussians import SharedGaussians
from safecl.heads.left_out import LeftOut, one_of_each
from safecl.heads.nearest import NearestMean

RANDOM = torch.Generator().manual_seed(0)
TARGETS = torch.arange(4).repeat(9)
SPREAD = torch.tensor([3.0, 2.0, 1.0, 0.5, 0.2])
FEATURES = (
    3 * torch.randn(4, 5, generator=RANDOM)[TARGETS]
    + SPREAD * torch.randn(36, 5, generator=RANDOM)
    + 20
)


def of(features: torch.Tensor, targets: torch.Tensor) -> NearestMean:
    gaussians = SharedGaussians(5)
    found = NearestMean(5)
    gaussians.add(features, targets)
    found.follow(gaussians)
    return found


def test_the_distance_is_mahalanobis_with_a_shrunk_covariance() -> None:
    x, f, t = (
        rows.double().numpy()
        for rows in (torch.randn(7, 5, generator=RANDOM) + 20, FEATURES, TARGETS)
    )
    means = np.stack([f[t == c].mean(axis=0) for c in range(4)])
    covariance = sum(np.cov(f[t == c].T, ddof=1) * 8 for c in range(4)) / 32
    unit = np.trace(covariance) / 5
    square = (covariance**2).sum()
    rho = ((1 - 2 / 5) * square + (5 * unit) ** 2) / ((33 - 2 / 5) * (square - 5 * unit**2))
    assert 0 < rho < 1
    inverse = np.linalg.inv((1 - rho) * covariance + (rho + 1e-6) * unit * np.eye(5))
    wanted = [min((row - m) @ inverse @ (row - m) for m in means) for row in x]
    assert of(FEATURES, TARGETS)(torch.tensor(x).float()).tolist() == pytest.approx(
        wanted, rel=1e-3
    )


def test_a_class_whose_pictures_are_all_here_is_left_out_wholly() -> None:
    """All but the strength of the shrinkage is exact, and many other pictures ask for little."""
    features = torch.cat([FEATURES, 20 + 30 * torch.randn(400, 5, generator=RANDOM)])
    targets = torch.cat([TARGETS, torch.full((400,), 4)])
    head = of(features, targets)
    own = TARGETS < 2
    found = head(features[:36][own], LeftOut(TARGETS[own], TARGETS[own]))
    for c in (0, 1):
        rest = targets != c
        wanted = of(features[rest], targets[rest] - (targets[rest] > c).long())
        assert found[TARGETS[own] == c].tolist() == pytest.approx(
            wanted(features[targets == c]).tolist(), rel=0.02
        )


def test_a_picture_is_left_out_as_if_it_had_not_been_learned() -> None:
    """All but the strength of the shrinkage, which one picture hardly changes, is exact; so is a
    picture's twin.
    """
    features = torch.cat([FEATURES, FEATURES[:1]])
    targets = torch.cat([TARGETS, TARGETS[:1]])
    head = of(features, targets)
    groups = one_of_each(targets)
    groups[-1] = groups[0]
    found = head(features, LeftOut(targets, groups))
    for i in (0, 5, 36):
        rest = (features != features[i]).any(dim=1)
        assert float(found[i]) == pytest.approx(
            float(of(features[rest], targets[rest])(features[i : i + 1])), rel=0.06
        )
        assert float(found[i]) > float(head(features[i : i + 1]))


@pytest.mark.parametrize("counts", [(a, b) for a in (1, 2, 3) for b in (1, 2, 3)])
def test_any_pictures_may_leave_their_class(counts: tuple[int, int]) -> None:
    """Down to one of each class, whose covariance is nothing but rounding: distances are then those
    of the features.
    """
    targets = torch.arange(2).repeat_interleave(torch.tensor(counts))
    for left in range(1, len(targets)):
        for start in range(len(targets) - left + 1):
            for to in (-1, 2):
                gaussians = SharedGaussians(5)
                found = NearestMean(5)
                gone = slice(start, start + left)
                gaussians.add(FEATURES[: len(targets)], targets)
                gaussians.correct(FEATURES[gone], targets[gone], torch.full((left,), to))
                found.follow(gaussians)
                distances = found(FEATURES)
                assert distances.isfinite().all()
                if gaussians.counts.max() == 1:
                    means = gaussians.means[gaussians.counts > 0]
                    wanted = torch.cdist(FEATURES, means).amin(dim=1).square()
                    assert torch.allclose(distances, wanted, rtol=1e-3, atol=1e-3)


def test_the_only_picture_of_a_class_is_as_far_as_from_the_others() -> None:
    features = torch.cat([FEATURES, FEATURES[:1] + 9])
    targets = torch.cat([TARGETS, torch.tensor([4])])
    head = of(features, targets)
    found = head(features, LeftOut(targets, one_of_each(targets)))
    assert 10 < float(found[-1]) < float("inf")
    head.drop_class(4)
    assert len(head.means) == 4 and float(head(features)[-1]) > 10


def test_pictures_that_are_all_equal_have_a_distance() -> None:
    assert of(torch.ones(4, 5), torch.tensor([0, 0, 1, 1]))(torch.ones(1, 5)).isfinite().all()


def test_a_class_that_is_dropped_or_merged_leaves_the_distances_of_the_others() -> None:
    """By value: of two models, one with the classes of both; and without a class, the means and
    counts of the rest.
    """
    both, one, other, before = (SharedGaussians(5) for _ in range(4))
    before.add(FEATURES[:8], TARGETS[:8])
    for gaussians, rows in (
        (both, slice(0, 36)),
        (one, slice(0, 20)),
        (other, slice(0, 8)),
        (other, slice(20, 36)),
    ):
        gaussians.add(FEATURES[rows], TARGETS[rows])
    one.merge(other, before, torch.arange(4))
    found = NearestMean(5)
    wanted = NearestMean(5)
    found.follow(one)
    found.merge(wanted, wanted, torch.arange(4))  # it follows the Gaussians alone
    wanted.follow(both)
    for name, value in wanted.state_dict().items():
        assert torch.allclose(found.state_dict()[name], value, rtol=1e-4, atol=1e-5), name
    distances = torch.stack([of_one(wanted, c)(FEATURES) for c in (0, 2, 3)]).amin(dim=0)
    wanted.drop_class(1)
    assert wanted.counts.tolist() == [9, 9, 9] and torch.allclose(
        wanted(FEATURES), distances, rtol=1e-4
    )
    assert not torch.allclose(wanted(FEATURES), found(FEATURES))


def of_one(head: NearestMean, c: int) -> NearestMean:
    """The same covariance, and one class alone."""
    alone = copy.deepcopy(head)
    alone.means = head.means[c : c + 1]
    alone.counts = head.counts[c : c + 1]
    return alone


def test_a_picture_that_leaves_its_class_leaves_no_trace() -> None:
    """Also where features lie far from zero, and close to each other."""
    close = 20 + 0.01 * FEATURES
    gaussians = SharedGaussians(5)
    found = NearestMean(5)
    gaussians.add(close, torch.cat([torch.tensor([1]), TARGETS[1:]]))
    gaussians.correct(close[:2], torch.tensor([1, 1]), torch.tensor([0, -1]))
    found.follow(gaussians)
    rest = torch.arange(36) != 1
    wanted = of(close[rest], TARGETS[rest]).state_dict()
    for name, value in found.state_dict().items():
        assert float((value - wanted[name]).abs().max()) <= 1e-5 * float(
            wanted[name].abs().max()
        ), name
