"""Class means and scatter matrices: models that learned apart become one, and a class is taken
out.
"""

from typing import Any

import torch
from torch import Tensor

from safecl.heads.gaussians import ClassGaussians, SharedGaussians
from safecl.randomness import generator

WIDTH = 6


def draw(n: int, classes: int, seed: int) -> tuple[Tensor, Tensor]:
    random = generator(seed)
    y = torch.randint(classes, (n,), generator=random)
    y[:classes] = torch.arange(classes)
    mixing = torch.randn(classes, WIDTH, WIDTH, generator=generator(99))
    return (
        3 * y[:, None]
        + torch.einsum("nij,nj->ni", mixing[y], torch.randn(n, WIDTH, generator=random)),
        y,
    )


def made(kind: Any, *batches: tuple[Tensor, Tensor]) -> Any:
    found = kind(WIDTH)
    for batch in batches:
        found.add(*batch)
    return found


def same(one: SharedGaussians, other: SharedGaussians) -> bool:
    a = one.covariance()
    b = other.covariance()
    return (
        torch.equal(one.counts, other.counts)
        and torch.allclose(one.means, other.means, atol=1e-4)
        and torch.allclose(a, b, atol=1e-4 * float(b.max()))
    )


def test_what_another_model_has_learned_since_is_added_class_by_class() -> None:
    common = draw(40, 3, 0)
    mine = draw(30, 4, 1)
    its = draw(30, 5, 2)
    before = made(SharedGaussians, common)
    now = made(SharedGaussians, common, its)
    own = made(SharedGaussians, common, mine)
    index = torch.tensor([0, 1, 2, 4, 3])  # its classes 3 and 4 are 4 and 3 here
    own.merge(now, before, index)
    assert same(own, made(SharedGaussians, common, mine, (its[0], index[its[1]])))


def test_classes_without_a_place_are_left_out() -> None:
    own = made(SharedGaussians, draw(30, 2, 0))
    now = made(SharedGaussians, draw(30, 3, 1))
    own.merge(now, made(SharedGaussians), torch.tensor([-1, 2, -1]))
    assert own.counts.tolist() == [
        *made(SharedGaussians, draw(30, 2, 0)).counts.tolist(),
        int(now.counts[1]),
    ]
    assert torch.allclose(own.means[2], now.means[1])


def test_merging_leaves_the_other_one_alone() -> None:
    one = made(SharedGaussians, draw(9, 3, 0))
    other = made(SharedGaussians, draw(12, 3, 1))
    before = {name: value.clone() for name, value in other.state_dict().items()}
    one.merge(other, made(SharedGaussians), torch.arange(3))
    one.add(*draw(5, 3, 2))
    assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())


def test_what_was_there_before_is_subtracted() -> None:
    first = draw(40, 3, 0)
    second = draw(25, 3, 1)
    found = made(SharedGaussians)
    found.merge(
        made(SharedGaussians, first, second), made(SharedGaussians, second), torch.arange(3)
    )
    assert same(found, made(SharedGaussians, first))


def test_a_class_that_is_dropped_leaves_nothing_behind() -> None:
    x, y = draw(60, 4, 0)
    found = made(ClassGaussians, (x, y))
    found.drop_class(1)
    stay = y != 1
    expected = made(ClassGaussians, (x[stay], y[stay] - (y[stay] > 1).long()))
    assert all(
        torch.equal(value, expected.state_dict()[name])
        for name, value in found.state_dict().items()
    )
