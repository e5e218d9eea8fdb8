"""The sums behind the ridge head, and what is said where they do not fit."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from safecl.errors import SafeclError
from safecl.heads import statistics as module
from safecl.heads.statistics import Statistics, movement, require_memory

CPU = torch.device("cpu")


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.randoms(), st.integers(1, 12))
def test_statistics_are_the_same_sums_in_any_order(sizes: list[int], random, chunk: int) -> None:  # type: ignore[no-untyped-def]
    h = torch.randn(sum(sizes), 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.arange(len(h)) % 3
    parts = list(zip(h.split(sizes), y.split(sizes), strict=True))
    random.shuffle(parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK", chunk)
        statistics = Statistics(10)
        for part in parts:
            statistics.add(*part)
    assert torch.allclose(statistics.gram, h.T @ h) and torch.equal(statistics.gram, statistics.gram.T)
    assert torch.allclose(statistics.sums, h.T @ torch.eye(3, dtype=torch.float64)[y][:, : int(y.max()) + 1])
    assert statistics.count == len(h)
    assert statistics.unit == pytest.approx(float(h.square().sum()) / len(h))


@pytest.mark.parametrize("points", [4, 10, 25])
@pytest.mark.parametrize("chunk", [3, 1024])
def test_statistics_follow_points_that_moved(points: int, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the operator of the docstring, here in float64, whether there are fewer points than dimensions or more."""
    random = torch.Generator().manual_seed(0)
    h, y = torch.randn(40, 10, generator=random), torch.arange(40) % 3
    p, q = torch.randn(2, points, 10, generator=random)
    source, found = Statistics(10), Statistics(10)
    source.add(h, y)
    monkeypatch.setattr(module, "CHUNK", chunk)
    found.follow(source, movement(p, q))
    kernel = p.double() @ p.double().T
    kernel += module.RIDGE * kernel.diagonal().mean() * torch.eye(points)
    operator = torch.eye(10).double() + p.double().T @ torch.linalg.solve(kernel, (q - p).double())
    moved = h.double() @ operator
    assert torch.allclose(found.gram.double(), moved.T @ moved, rtol=1e-4, atol=1e-5 * float((moved.T @ moved).max()))
    assert torch.allclose(found.sums.double(), moved.T @ torch.eye(3).double()[y], rtol=1e-4, atol=1e-3)
    assert torch.allclose(found.gram, found.gram.T, atol=1e-3) and found.count == 40


def test_points_that_stay_leave_the_statistics_as_they_are() -> None:
    source, found = Statistics(10), Statistics(10)
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
    free: int, width: int, grams: int, itemsize: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "free_memory", lambda device: free)
    with pytest.raises(SafeclError) as error:
        require_memory(10**7, CPU, width, grams, itemsize)
    (offered,) = re.findall(r"set ridge.size to (\d+) or less", str(error.value))
    assert len(offered.rstrip("0")) <= 2
    require_memory(int(offered), CPU, width, grams, itemsize)
    step = 10 ** (len(offered) - 2)
    with pytest.raises(SafeclError):
        require_memory(int(offered) + step, CPU, width, grams, itemsize)


def test_where_nothing_fits_no_size_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "free_memory", lambda device: 10)
    with pytest.raises(SafeclError, match=r"0\.0 GB are free; free some memory first"):
        require_memory(1, CPU)


def test_the_memory_is_asked_for_once_before_the_matrix_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(module, "require_memory", lambda size, device, itemsize: asked.append((size, itemsize)))
    statistics = Statistics(6)
    assert not asked
    for _ in range(2):
        statistics.add(torch.ones(2, 6, dtype=torch.float64), torch.tensor([0, 1]))
    assert asked == [(6, 8)]


def test_what_is_counted_is_what_is_made() -> None:
    """G and half a matrix for its factor; a second G counts one matrix more."""
    size = 10**6
    one, two = (module._needed(size, 0, grams, 4) for grams in (1, 2))
    assert one == pytest.approx(1.5 * 4 * size**2, rel=0.01) and two - one == 4 * size**2
    assert module._needed(size, 768, 1, 4) - one == 4 * 768 * size
