"""The sums behind the ridge head, and what is said where they do not fit."""

import re
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from safecl.errors import SafeclError
from safecl.heads.gram import (
    CHUNK,
    RIDGE,
    Statistics,
    memory_needed,
    movement,
    require_memory,
)
from tests.conftest import raises

CPU = torch.device("cpu")


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.randoms())
def test_statistics_are_the_same_sums_in_any_order(sizes: list[int], random: Random) -> None:
    h = torch.randn(sum(sizes), 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.arange(len(h)) % 3
    parts = list(zip(h.split(sizes), y.split(sizes), strict=True))
    random.shuffle(parts)
    statistics = Statistics(10)
    for part in parts:
        statistics.add(*part)
    assert torch.allclose(statistics.gram, h.T @ h) and torch.equal(
        statistics.gram, statistics.gram.T
    )
    assert torch.allclose(
        statistics.sums, h.T @ torch.eye(3, dtype=torch.float64)[y][:, : int(y.max()) + 1]
    )
    assert statistics.count == len(h)
    assert statistics.unit == pytest.approx(float(h.square().sum()) / len(h))


def test_more_pictures_and_random_features_than_a_chunk_are_added_a_chunk_at_a_time() -> None:
    x = torch.randn(CHUNK + 300, 4, generator=torch.Generator().manual_seed(0)).double()
    y = torch.arange(len(x)) % 3
    projection = torch.randn(4, CHUNK + 50, generator=torch.Generator().manual_seed(1)).double()
    sizes = list[int]()

    def project(part: Tensor) -> Tensor:
        sizes.append(len(part))
        return part @ projection

    statistics = Statistics(CHUNK + 50)
    statistics.accumulate(project, x, y)
    h = x @ projection
    assert sizes == [CHUNK, 300]
    assert torch.allclose(statistics.gram, h.T @ h)
    assert torch.equal(statistics.gram, statistics.gram.T)
    assert torch.allclose(statistics.sums, h.T @ torch.eye(3, dtype=torch.float64)[y])


@pytest.mark.parametrize(("points", "size"), [(4, 10), (10, 10), (25, 10), (4, CHUNK + 10)])
def test_statistics_follow_points_that_moved(points: int, size: int) -> None:
    """By the operator of the docstring, here in float64, whether there are fewer points than
    dimensions or more.
    """
    random = torch.Generator().manual_seed(0)
    h = torch.randn(40, size, generator=random)
    y = torch.arange(40) % 3
    p, q = torch.randn(2, points, size, generator=random)
    source = Statistics(size)
    found = Statistics(size)
    source.add(h, y)
    found.follow(source, movement(p, q))
    kernel = p.double() @ p.double().T
    kernel += RIDGE * kernel.diagonal().mean() * torch.eye(points)
    operator = torch.eye(size).double() + p.double().T @ torch.linalg.solve(
        kernel, (q - p).double()
    )
    moved = h.double() @ operator
    assert torch.allclose(
        found.gram.double(), moved.T @ moved, rtol=1e-4, atol=1e-5 * float((moved.T @ moved).max())
    )
    assert torch.allclose(
        found.sums.double(), moved.T @ torch.eye(3).double()[y], rtol=1e-4, atol=1e-3
    )
    assert torch.allclose(found.gram, found.gram.T, atol=1e-3) and found.count == 40


def test_points_that_stay_leave_the_statistics_as_they_are() -> None:
    source = Statistics(10)
    found = Statistics(10)
    source.add(torch.randn(8, 10), torch.arange(8) % 2)
    for points in (torch.randn(6, 10), torch.zeros(6, 10)):
        found.follow(source, movement(points, points))
        assert torch.equal(found.gram, source.gram) and torch.equal(found.sums, source.sums)


def test_statistics_that_are_not_kept_are_no_part_of_the_state() -> None:
    statistics = Statistics(4, kept=False)
    statistics.add(torch.ones(3, 4), torch.tensor([0, 1, 2]))
    assert not statistics.state_dict()
    statistics.load_state_dict({})


def test_nothing_to_measure_has_the_unit_one() -> None:
    statistics = Statistics(4)
    assert statistics.unit == 1.0
    statistics.add(torch.zeros(3, 4), torch.tensor([0, 1, 2]))
    assert statistics.unit == 1.0


@pytest.mark.parametrize("free", [10**6, 3 * 10**8, 10**10, 10**12])
@pytest.mark.parametrize("width, grams, itemsize", [(768, 1, 4), (0, 3, 8)])
def test_the_size_that_is_offered_is_round_and_fits_and_the_next_one_does_not(
    free: int, width: int, grams: int, itemsize: int
) -> None:
    with pytest.raises(SafeclError) as error:
        require_memory(10**7, CPU, width, grams, itemsize, free)
    (offered,) = re.findall(r"set ridge.size to (\d+) or less", str(error.value))
    assert len(offered.rstrip("0")) <= 2
    require_memory(int(offered), CPU, width, grams, itemsize, free)
    step = 10 ** (len(offered) - 2)
    with pytest.raises(SafeclError):
        require_memory(int(offered) + step, CPU, width, grams, itemsize, free)


def test_where_nothing_fits_no_size_is_offered() -> None:
    with raises("ridge.memory", advice=re.compile("^free some memory first")):
        require_memory(1, CPU, free=10)


@pytest.mark.parametrize(("dtype", "needed"), [(torch.float32, 6), (torch.float64, 12)])
def test_a_matrix_that_does_not_fit_is_refused_before_it_is_made(
    dtype: torch.dtype, needed: int
) -> None:
    statistics = Statistics(10**6)
    row = torch.ones(1, 1, dtype=dtype).expand(1, 10**6)
    with raises("ridge.memory", size=10**6) as refused:
        statistics.add(row, torch.tensor([0]))
    assert int(refused.value.fields["needed"] / 1e3) == needed
    assert not len(statistics.gram) and not statistics.count


def test_a_state_with_a_matrix_that_does_not_fit_is_refused() -> None:
    statistics = Statistics(10**6)
    state = {"gram": torch.ones(1, 1).expand(10**6, 10**6), "sums": torch.ones(10**6, 2)}
    with raises("ridge.memory", size=1000000):
        statistics.load_state_dict({**state, "count": torch.tensor(3)})
    assert not len(statistics.gram)


def test_what_is_counted_is_what_is_made() -> None:
    """G and half a matrix for its factor; a second G counts one matrix more."""
    size = 10**6
    one, two = (memory_needed(size, 0, grams, 4) for grams in (1, 2))
    assert one == pytest.approx(1.5 * 4 * size**2, rel=0.01) and two - one == 4 * size**2
    assert memory_needed(size, 768, 1, 4) - one == 4 * 768 * size
