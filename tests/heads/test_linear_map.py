"""The map from one network's features to another's: exact where it is linear, careful where
pictures are few.
"""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.model_selection import LeaveOneGroupOut
from torch import Tensor

from safecl.heads.linear_map import JUDGING_PICTURES, RIDGES, LinearMap, choose_ridge, left_out
from safecl.randomness import generator

WIDTH = 8


def draw(n: int, seed: int = 0) -> Tensor:
    return 3 + torch.randn(n, WIDTH, generator=generator(seed))


def test_a_linear_change_of_all_features_is_found() -> None:
    matrix = torch.randn(WIDTH, WIDTH, generator=generator(1))
    offset = torch.randn(WIDTH, generator=generator(2))
    x = draw(400)
    found = LinearMap(WIDTH)
    found.fit(x, x @ matrix + offset, torch.arange(400) % 5)
    new = draw(10, seed=3)
    assert torch.allclose(found(new), new @ matrix + offset, atol=0.05)


def test_before_any_fit_and_where_nothing_moved_it_is_the_identity() -> None:
    x = draw(30)
    found = LinearMap(WIDTH)
    assert torch.equal(found(x), x)
    found.fit(x, x, torch.arange(30) % 3)
    assert torch.allclose(found(draw(9, seed=1)), draw(9, seed=1), atol=1e-5)


def test_movement_by_chance_is_not_learned() -> None:
    x = draw(12)  # hardly more pictures than features
    moved = x + torch.randn(12, WIDTH, generator=generator(5))
    found = LinearMap(WIDTH)
    found.fit(x, moved, torch.arange(12) % 4)
    new = draw(50, seed=1)
    assert (found(new) - new).norm(dim=1).mean() < 0.7 * (moved - x).mean(dim=0).norm()
    assert (found.matrix - torch.eye(WIDTH)).norm() < 0.2


@pytest.mark.parametrize("n", [1, 2, 30])
def test_one_class_says_nothing_of_others(n: int) -> None:
    x = draw(40)
    found = LinearMap(WIDTH)
    found.fit(x, 2 * x, torch.arange(40) % 4)
    before = found.matrix.clone(), found.offset.clone()
    found.fit(x[:n], x[:n] + 1, torch.zeros(n, dtype=torch.long))
    assert torch.equal(found.matrix, before[0]) and torch.equal(found.offset, before[1])


@pytest.mark.parametrize("n", [2, 3])
def test_of_a_few_pictures_a_shift_that_they_have_in_common_is_taken(n: int) -> None:
    """Fewer pictures than features; also where all pictures are one."""
    for x in (draw(n), torch.ones(n, WIDTH)):
        found = LinearMap(WIDTH)
        found.fit(x, x + 1, torch.arange(n))
        assert torch.allclose(found(draw(5, seed=1)), draw(5, seed=1) + 1, atol=1e-3)


def test_classes_that_move_apart_from_each_other_move_no_others() -> None:
    for x in (draw(40), torch.ones(40, WIDTH)):
        found = LinearMap(WIDTH)
        classes = torch.arange(40) % 2
        found.fit(x, x + (2 * classes[:, None] - 1), classes)
        assert torch.allclose(found(draw(5, seed=1)), draw(5, seed=1), atol=1e-5)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("ridge", [0.1, 10.0])
def test_the_error_on_groups_that_are_left_out_is_that_of_fits_without_them(
    grouped: bool, ridge: float
) -> None:
    x = draw(30).double()
    y = 0.1 * x[:, :4] + torch.randn(30, 4, generator=generator(1)).double()
    groups = torch.arange(30) % 5 if grouped else torch.arange(30)
    expected = 0.0
    said = torch.zeros_like(y)
    for fitted, left in LeaveOneGroupOut().split(x, y, groups):
        # Centred at the mean of all, as there is no ridge on the constant either way.
        model = Ridge(alpha=ridge).fit(x[fitted], y[fitted])
        expected += float(np.square(model.predict(x[left]) - y[left].numpy()).sum())
        said[left] = torch.from_numpy(model.predict(x[left]))
    centred = x - x.mean(dim=0)
    values, vectors = torch.linalg.eigh(centred.T @ centred)
    both = values + torch.tensor([[ridge], [7 * ridge]])
    found, shares = left_out(centred @ vectors, y, both, groups)
    assert float(found[0]) == pytest.approx(expected, rel=1e-5)
    assert 0 < float(shares[0]) < 1
    assert float(shares[0]) == pytest.approx(
        float((said * y).sum() / said.square().sum()), rel=1e-5
    )
    for whole, part in zip(
        (found, shares), left_out(centred @ vectors, y, both[1:], groups), strict=True
    ):
        assert torch.allclose(whole[1:], part)


def test_the_ridge_is_chosen_for_classes_that_are_not_there() -> None:
    """Movement that goes with the class, and not with where its pictures are, is no reason to trust
    the matrix.
    """
    classes = torch.arange(60) % 3
    x = draw(60).double() + 20 * torch.randn(3, WIDTH, generator=generator(8)).double()[classes]
    moved = torch.randn(3, WIDTH, generator=generator(9)).double()[classes]
    (by_class, share), (by_picture, other) = (
        choose_ridge(x, moved, own) for own in (classes, torch.arange(60))
    )
    assert by_class > by_picture and share < 0.3 < 0.9 < other


def test_of_many_pictures_some_choose_and_all_are_fitted() -> None:
    """The last ones, which lie elsewhere, are fitted without having been asked."""
    matrix = torch.randn(WIDTH, WIDTH, generator=generator(1))
    x = draw(2 * JUDGING_PICTURES)
    x[:JUDGING_PICTURES, WIDTH // 2 :] = 0
    found = LinearMap(WIDTH)
    noise = 0.3 * torch.randn(x.shape, generator=generator(4))
    found.fit(x, x @ matrix + noise, torch.arange(len(x)) % 64)
    assert torch.allclose(found.matrix, matrix, atol=0.1)
    assert len(RIDGES) == len(set(RIDGES))


def test_a_state_is_the_map() -> None:
    one = LinearMap(WIDTH)
    other = LinearMap(WIDTH)
    x = draw(50)
    one.fit(x, 2 * x, torch.arange(50) % 5)
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(x), other(x))
