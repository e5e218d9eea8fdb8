"""Gaussians of few directions: their bytes, what they keep exactly, and samples that stand for the pictures."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from safecl.heads import low_rank
from safecl.heads.low_rank import RANK, LowRankGaussians
from safecl.randomness import generator

WIDTH = 40


def draw(n: int, classes: int = 3, rank: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Features of which those of a class vary in ``rank`` directions only."""
    random = generator(seed)
    y = torch.arange(n) % classes
    mixing = torch.randn(classes, rank, WIDTH, generator=generator(7))
    return 2 * y[:, None] + torch.einsum("nr,nrd->nd", torch.randn(n, rank, generator=random), mixing[y]), y


def made(*batches: tuple[Tensor, Tensor]) -> LowRankGaussians:
    found = LowRankGaussians(batches[0][0].shape[1])
    for batch in batches:
        found.add(*batch)
    return found


def recalled(gaussians: LowRankGaussians, most: int = 10**6, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    x, y, w = (torch.cat(parts) for parts in zip(*gaussians.recall(most, generator(seed)), strict=True))
    return x, y, w


def test_a_thousand_classes_take_fewer_bytes_than_one_packed_gram_matrix() -> None:
    gaussians = made((torch.randn(4, 768), torch.tensor([0, 0, 1, 1])))
    bytes_of_a_class = sum(value.nbytes for value in gaussians.state_dict().values()) / 2
    assert 1000 * bytes_of_a_class < 4 * 5000 * 5001 / 2  # at the default number of random features


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.randoms())
def test_up_to_the_rank_batches_add_up_in_any_order(sizes: list[int], random: Any) -> None:
    x, y = draw(sum(sizes))
    whole, batches = made((x, y)), list(zip(x.split(sizes), y.split(sizes), strict=True))
    random.shuffle(batches)
    parts = made(*batches)
    assert torch.equal(parts.counts, whole.counts) and torch.allclose(parts.means, whole.means, atol=1e-5)
    for c in range(whole.classes):
        found, expected = parts.covariance(c), whole.covariance(c)
        assert torch.allclose(found, expected, atol=4e-3 * max(1.0, float(expected.max())))


def test_beyond_the_rank_the_whole_variance_and_the_largest_directions_stay() -> None:
    x = torch.randn(300, WIDTH, generator=generator(1)) * torch.linspace(3, 0.1, WIDTH)
    y = torch.zeros(300, dtype=torch.long)
    found, exact = made((x[:150], y[:150]), (x[150:], y[150:])).covariance(0), x.T.cov()
    assert float(found.trace()) == pytest.approx(float(exact.trace()), rel=1e-3)
    values, vectors = torch.linalg.eigh(exact)
    top = vectors[:, -4:]
    assert torch.allclose((top.T @ found @ top).diagonal(), values[-4:], rtol=0.05)
    assert torch.linalg.eigvalsh(found)[: WIDTH - RANK].std() < 1e-3  # one variance for all that is not kept


def test_samples_have_the_means_exactly_and_weigh_what_their_pictures_weighed() -> None:
    x, y = draw(70, classes=3)
    x, y = torch.cat([x, x[:5]]), torch.cat([y, torch.full((5,), 3)])
    gaussians = made((x, y))
    for most in (10**6, 20):
        features, targets, weights = recalled(gaussians, most)
        totals = torch.zeros(4).index_add_(0, targets, weights)
        assert torch.allclose(totals, gaussians.counts.float(), rtol=1e-5)
        for c in range(4):
            own = targets == c
            assert torch.allclose(features[own].mean(dim=0), gaussians.mean(c), atol=1e-4)


def test_samples_have_the_covariance_of_their_class() -> None:
    """Exactly, where the pairs go through all directions of whole orthogonal matrices."""
    x, y = torch.randn(WIDTH, WIDTH, generator=generator(2)) * torch.linspace(3, 0.5, WIDTH), torch.zeros(WIDTH).long()
    gaussians = made((x, y))
    features, _, _ = recalled(gaussians)  # 4 d samples: 2 d pairs
    centred = features - gaussians.mean(0)
    assert len(features) == low_rank.SAMPLES * WIDTH
    found, expected = centred.T @ centred / len(features), gaussians.covariance(0)
    assert torch.allclose(found, expected, atol=1e-3 * float(expected.max()))


def test_more_pictures_than_wanted_have_fewer_samples() -> None:
    gaussians = made(draw(600))
    assert len(recalled(gaussians, most=100)[0]) == pytest.approx(low_rank.SAMPLES * 100, abs=6)


def test_a_class_of_one_picture_is_that_picture() -> None:
    gaussians = made((torch.eye(3, WIDTH), torch.tensor([0, 1, 2])))
    features, targets, _ = recalled(gaussians)
    assert torch.allclose(features, torch.eye(3, WIDTH)[targets])


def test_recall_depends_on_its_generator_alone_and_not_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    gaussians = made(draw(90))
    one, again, other = (recalled(gaussians, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one[0], again[0]) and not torch.equal(one[0], other[0])
    monkeypatch.setattr(low_rank, "CHUNK", 8)
    cut = recalled(gaussians)
    assert torch.allclose(cut[0].sum(dim=0), one[0].sum(dim=0), atol=1e-2) and len(cut[0]) == len(one[0])


def test_a_state_brings_its_own_classes_and_goes_on_as_if_never_saved() -> None:
    one, other = made(draw(30)), LowRankGaussians(WIDTH)
    other.load_state_dict(one.state_dict())
    for each in (one, other):
        each.add(*draw(12, classes=4, seed=5))
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())
