"""The map from one network's features to another's: exact where it is linear, careful where pictures are few."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.model_selection import LeaveOneGroupOut
from torch import Tensor

from safecl.heads import linear_map
from safecl.heads.linear_map import RIDGES, LinearMap, choose_ridge, left_out_errors
from safecl.randomness import generator

WIDTH = 8


def draw(n: int, seed: int = 0) -> Tensor:
    return 3 + torch.randn(n, WIDTH, generator=generator(seed))


def test_a_linear_change_of_all_features_is_found() -> None:
    matrix, offset = torch.randn(WIDTH, WIDTH, generator=generator(1)), torch.randn(WIDTH, generator=generator(2))
    x, found = draw(400), LinearMap(WIDTH)
    found.fit(x, x @ matrix + offset, torch.arange(400) % 5)
    new = draw(10, seed=3)
    assert torch.allclose(found(new), new @ matrix + offset, atol=0.05)


def test_before_any_fit_and_where_nothing_moved_it_is_the_identity() -> None:
    x, found = draw(30), LinearMap(WIDTH)
    assert torch.equal(found(x), x)
    found.fit(x, x, torch.arange(30) % 3)
    assert torch.allclose(found(draw(9, seed=1)), draw(9, seed=1), atol=1e-5)


def test_movement_by_chance_is_not_learned() -> None:
    x = draw(12)  # hardly more pictures than features
    moved, found = x + torch.randn(12, WIDTH, generator=generator(5)), LinearMap(WIDTH)
    found.fit(x, moved, torch.arange(12) % 4)
    new = draw(50, seed=1)
    shift = (moved - x).mean(dim=0)
    assert torch.allclose(found(new), new + shift, atol=0.5)
    assert (found.matrix - torch.eye(WIDTH)).norm() < 0.2


@pytest.mark.parametrize("n", [1, 2, 3])
def test_of_a_few_pictures_the_shift_is_taken(n: int) -> None:
    """Fewer pictures than features; a single class; a single picture."""
    x, found = draw(n), LinearMap(WIDTH)
    found.fit(x, x + 1, torch.zeros(n, dtype=torch.long))
    assert torch.allclose(found(draw(5, seed=1)), draw(5, seed=1) + 1, atol=1e-3)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("ridge", [0.1, 10.0])
def test_the_error_on_groups_that_are_left_out_is_that_of_fits_without_them(grouped: bool, ridge: float) -> None:
    x, y = draw(30).double(), torch.randn(30, 4, generator=generator(1)).double()
    groups = torch.arange(30) % 5 if grouped else torch.arange(30)
    expected = 0.0
    for fitted, left in LeaveOneGroupOut().split(x, y, groups):
        # Centred at the mean of all, as there is no ridge on the constant either way.
        model = Ridge(alpha=ridge).fit(x[fitted], y[fitted])
        expected += float(np.square(model.predict(x[left]) - y[left].numpy()).sum())
    centred, target = x - x.mean(dim=0), y - y.mean(dim=0)
    values, vectors = torch.linalg.eigh(centred.T @ centred)
    both = values + torch.tensor([[ridge], [7 * ridge]])
    found = left_out_errors(centred @ vectors, target, both, groups)
    assert float(found[0]) == pytest.approx(expected, rel=1e-5)
    assert torch.allclose(found[1:], left_out_errors(centred @ vectors, target, both[1:], groups))


def test_the_ridge_is_chosen_for_classes_that_are_not_there() -> None:
    """Movement that goes with the class, and not with where its pictures are, is no reason to trust the matrix."""
    classes = torch.arange(60) % 3
    x = draw(60).double() + 20 * torch.randn(3, WIDTH, generator=generator(8)).double()[classes]
    moved = torch.randn(3, WIDTH, generator=generator(9)).double()[classes]
    by_class, by_picture = choose_ridge(x, moved, classes), choose_ridge(x, moved, torch.arange(60))
    assert by_class is not None and by_picture is not None and by_class > by_picture


def test_pictures_that_do_not_vary_and_a_single_class_choose_no_ridge() -> None:
    assert choose_ridge(torch.ones(5, WIDTH), torch.randn(5, WIDTH), torch.arange(5)) is None
    assert choose_ridge(draw(5), torch.randn(5, WIDTH), torch.zeros(5)) is None


def test_of_many_pictures_some_choose_and_all_are_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_map, "JUDGING_PICTURES", 20)
    matrix, x, found = torch.randn(WIDTH, WIDTH, generator=generator(1)), draw(2000), LinearMap(WIDTH)
    noise = 0.3 * torch.randn(2000, WIDTH, generator=generator(4))
    found.fit(x, x @ matrix + noise, torch.arange(2000) % 2)
    assert torch.allclose(found.matrix, matrix, atol=0.1)
    assert len(RIDGES) == len(set(RIDGES))


def test_a_state_is_the_map() -> None:
    one, other, x = LinearMap(WIDTH), LinearMap(WIDTH), draw(50)
    one.fit(x, 2 * x, torch.arange(50) % 5)
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(x), other(x))
