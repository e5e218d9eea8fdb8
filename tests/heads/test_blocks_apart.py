"""Blocks that are read apart: each has a projection and a β of its own, and weights that change
with the evidence.
"""

import numpy as np
import pytest
import torch
from torch import Tensor

from safecl.heads.left_out import LeftOut, one_of_each
from safecl.heads.reading import PLAIN, Reading, Widths
from safecl.heads.ridge import RidgeHead
from safecl.heads.settings import RidgeSettings, weightings
from safecl.heads.solve import solve, whitened
from safecl.randomness import generator
from tests.conftest import raises

APART = RidgeSettings(size=60, blocks="apart")
READ = Reading(3, True)
STAGES = Widths(8, (6, 4), 5)


def lesson(head: RidgeHead, seed: int, each: int = 8, informed: int = 0) -> tuple[Tensor, Tensor]:
    """Features of four new classes, of which the block ``informed`` tells more than the others;
    the norms of blocks differ.
    """
    random = generator(seed)
    targets = torch.arange(4 * each) % 4
    views = []
    for _ in range(head.reading.views):
        parts = [
            torch.randn(len(targets), width, generator=random) for width in head.project.inputs
        ]
        parts[informed] += 4 * torch.eye(4, parts[informed].shape[1])[targets]
        views += [10.0**b * part for b, part in enumerate(parts)]
    return torch.cat(views, dim=1), targets + 4 * seed


def head_of(reading: Reading = READ, widths: Widths = STAGES) -> RidgeHead:
    head = RidgeHead(widths, APART, seed=3).double()
    head.read(reading)
    return head


def taught(head: RidgeHead, *seeds: int, informed: int = 0) -> RidgeHead:
    for seed in seeds:
        head.add(*lesson(head, seed, informed=informed))
    head.solve()
    return head


def shares(head: RidgeHead) -> Tensor:
    """By random feature, its weight in units of the mean squared norm of its block: (M,)."""
    count = int(head.statistics.count)
    parts = head.statistics.gram.diagonal().split(head.project.sizes)
    squares = torch.stack([part.sum() / count for part in parts])
    weights = torch.tensor(head.weights).double()
    return (weights / squares.sqrt()).repeat_interleave(torch.tensor(head.project.sizes))


@pytest.mark.parametrize("mirror", [False, True])
def test_a_beta_for_each_block_is_blocks_of_equal_norm_times_their_weights(mirror: bool) -> None:
    head = taught(head_of(READ._replace(mirror=mirror)), 0, 1)
    by_weighting = head.errors.unflatten(0, (-1, len(APART.betas)))
    best = int(head.errors.argmin())
    assert head.weights == weightings(READ)[best // len(APART.betas)]
    beta = APART.betas[int(by_weighting[head.weighting].argmin())]
    scale = shares(head)
    gram = scale[:, None] * head.statistics.gram * scale
    beta *= float(gram.diagonal().sum()) / int(head.statistics.count)
    inner = gram + beta * torch.eye(len(gram)).double()
    expected = torch.linalg.solve(inner, scale[:, None] * head.statistics.sums)
    shown = lesson(head, 0)[0][:, : head.width]
    torch.testing.assert_close(head.logits(shown), head.project(shown) * scale @ expected)


def test_each_block_has_columns_of_its_own_and_the_last_one_a_third_of_them() -> None:
    head = head_of()
    assert head.project.sizes == [21, 13, 13, 13]
    features = lesson(head, 0)[0]
    h = head.project(features)
    assert h.shape == (32, 60)
    for b, own in enumerate(head.project.inputs):
        start = sum(head.project.inputs[:b])
        changed = features.clone()
        changed[:, start : start + own] += 1
        moved = (head.project(changed) != h).any(dim=0).nonzero()[:, 0]
        first = sum(head.project.sizes[:b])
        assert first <= int(moved.min()) <= int(moved.max()) < first + head.project.sizes[b]
    torch.testing.assert_close(head.project.kernel(features), h @ h.T)
    torch.testing.assert_close(head.project.kernels(features).sum(dim=0), h @ h.T)


@pytest.mark.parametrize("informed", [0, 1])
def test_sessions_may_come_in_any_order_and_weights_change_with_them(informed: int) -> None:
    """What one session says of weights another one may take back; the sums stay."""
    one = taught(head_of(), 0, 1, 2, informed=informed)
    other = taught(head_of(), 2, 0, informed=informed)
    before = other.statistics.gram.clone()
    other.solve((other.weighting + 1) % len(weightings(READ)))
    assert torch.equal(other.statistics.gram, before)
    other.add(*lesson(other, 1, informed=informed))
    other.solve()
    assert one.weighting == other.weighting
    torch.testing.assert_close(one.weight, other.weight)


def test_the_block_that_tells_classes_apart_counts_more() -> None:
    last = taught(head_of(), 0, 1, 2, informed=0).weights
    earlier = taught(head_of(), 0, 1, 2, informed=1).weights
    assert last[0] / last[1] > earlier[0] / earlier[1]


def test_weights_that_are_given_hold_until_the_next_solution() -> None:
    head = taught(head_of(), 0, 1)
    asked = head.weighting
    other = (asked + 1) % len(weightings(READ))
    head.solve(other)
    assert head.weights == weightings(READ)[other]
    head.solve()
    assert head.weighting == asked


@pytest.mark.parametrize("mirror", [False, True])
def test_leaving_out_pictures_is_never_having_learned_them(mirror: bool) -> None:
    """By explicit regressions with the same β; also how much harm each does to the others."""
    head = taught(head_of(READ._replace(mirror=mirror)), 0, 1)
    pairs = [lesson(head, seed) for seed in (0, 1)]
    features = torch.cat([x for x, _ in pairs])
    targets = torch.cat([y for _, y in pairs])
    views = head.reading.views
    h = head.project(features).unflatten(0, (-1, views))
    beta = head.beta
    assert isinstance(beta, Tensor)

    def explicit(keep: Tensor) -> Tensor:
        rows = h[keep].flatten(0, 1) / views**0.5
        y = torch.nn.functional.one_hot(targets, 8).double()[keep].repeat_interleave(views, dim=0)
        y = y / views**0.5
        return torch.linalg.solve(rows.T @ rows + beta.diag(), rows.T @ y)

    for some in (slice(None), slice(6)):  # of all pictures the kernel is used
        own = targets[some]
        groups = one_of_each(own)
        found = head.logits(features[some], LeftOut(own, groups))
        for group in groups.unique():
            asked = (groups == group).nonzero()[:, 0]
            keep = torch.ones(len(targets), dtype=torch.bool)
            keep[asked] = False
            expected = h[asked, 0] @ explicit(keep)
            torch.testing.assert_close(found[asked], expected, atol=1e-6, rtol=1e-6)
    wanted = torch.nn.functional.one_hot(targets, 8).double()
    every = torch.ones(len(targets), dtype=torch.bool)

    def errors(without: list[int], asked: int) -> float:
        keep = every.clone()
        keep[[*without, asked]] = False
        return float((h[asked, 0] @ explicit(keep) - wanted[asked]).square().sum())

    less = sum(errors([], j) - errors([0], j) for j in range(1, len(targets)))
    assert head.harm(features, targets)[0] == pytest.approx(less, rel=1e-6)


@pytest.mark.parametrize("count", [40, 400])
def test_a_beta_for_each_feature_is_solved_for_with_few_pictures_and_many(count: int) -> None:
    """With few by some columns of G; against numpy in float64."""
    random = np.random.default_rng(0)
    h = random.normal(size=(count, 1200)) * np.repeat([1.0, 30.0, 0.1], 400)
    y = np.eye(3)[random.integers(0, 3, count)]
    beta = np.repeat([5.0, 4000.0, 0.04], 400)
    gram = torch.tensor(h.T @ h)
    sums = torch.tensor(h.T @ y)
    expected = np.linalg.solve(h.T @ h + np.diag(beta), h.T @ y)
    found = solve(gram, sums, torch.tensor(beta), count)
    assert np.allclose(found, expected, rtol=1e-8, atol=1e-10)
    if count == 400:
        asked = torch.tensor(h[:5])
        half = whitened(gram, asked, torch.tensor(beta))
        inner = np.linalg.solve(h.T @ h + np.diag(beta), h[:5].T)
        assert np.allclose(half.T @ half, h[:5] @ inner)


def test_a_state_knows_how_blocks_are_read_and_weighed_whatever_is_set() -> None:
    together = RidgeHead(STAGES, RidgeSettings(size=60), seed=3).double()
    together.read(READ)
    for own in (taught(head_of(), 0, 1, informed=1), taught(together, 0, 1)):
        for settings in (APART, RidgeSettings(size=60)):
            twin = RidgeHead(STAGES, settings, seed=3).double()
            twin.load_state_dict(own.state_dict())
            shown = lesson(own, 1)[0]
            assert (twin.reading, twin.weighting) == (own.reading, own.weighting)
            assert torch.equal(twin.logits(shown), own.logits(shown))
            twin.add(*lesson(own, 2))
            twin.solve()
            assert twin.errors.shape == own.errors.shape


def test_one_block_has_one_projection_however_blocks_are_read() -> None:
    plain, apart = (
        RidgeHead(8, RidgeSettings(size=60, blocks=how)) for how in ("together", "apart")
    )
    for head in (plain, apart):
        taught(head.double(), 0, 1)
    assert plain.state_dict().keys() == apart.state_dict().keys()
    assert all(
        torch.equal(value, apart.state_dict()[name]) for name, value in plain.state_dict().items()
    )


def test_apart_reads_six_blocks_and_patches_if_there_are_as_many() -> None:
    for depth, layers in ((12, 6), (2, 2)):
        widths = Widths(8, (8,) * (depth - 1))
        assert APART.readings(widths, False) == [Reading(layers, True)]
        assert APART.readings(widths, True) == [Reading(layers, True), Reading(layers, True, True)]
    assert APART.readings(Widths(8, (8,), 0), False) == [Reading(2)]
    few = RidgeSettings(blocks="apart", layers=3, patches=False, mirror=False)
    assert few.readings(Widths(8, (8,) * 11), True) == [Reading(3)]


def test_heads_that_read_differently_are_not_merged() -> None:
    """Their sums are of other features; two that read the same have the evidence of both."""
    one, other, begun = (taught(head_of(), seed) for seed in (0, 1, 2))
    errors = one.errors + other.errors
    one.merge(other, head_of(PLAIN), torch.arange(4))
    torch.testing.assert_close(one.errors, errors)
    one.merge(begun, begun, torch.arange(4))
    torch.testing.assert_close(one.errors, errors)
    together = RidgeHead(STAGES, RidgeSettings(size=60), seed=3).double()
    together.read(READ)
    for different in (together, head_of(Reading(2, True))):
        with raises("merge.differ", what="what their heads read"):
            one.merge(different, different, torch.arange(4))
