"""The solver behind the ridge head."""

import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from safecl.heads.solve import (
    CLASSES,
    COLUMNS,
    Factor,
    Kept,
    factored,
    factors_kept,
    smallest_beta,
    solve,
    whitened,
)


def statistics(n: int, size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """G (size, size) and W̃ (size, 10) of ``n`` random features."""
    h = torch.randn(n, size, generator=torch.Generator().manual_seed(0), dtype=dtype)
    return h.T @ h, h.T @ torch.eye(n, dtype=dtype)[:, :10]


def explicit(gram: Tensor, sums: Tensor, beta: float) -> Tensor:
    return torch.linalg.solve(
        gram.double() + beta * torch.eye(len(gram), dtype=torch.float64), sums.double()
    )


def test_a_singular_gram_matrix_is_solved_in_every_precision() -> None:
    h = torch.ones(5, 40)  # rank one
    gram = h.T @ h
    sums = h.T @ torch.eye(5)
    for dtype in (torch.float32, torch.float64):
        weight = solve(gram.to(dtype), sums.to(dtype), 1e-30)
        assert weight.dtype == dtype
        assert torch.allclose(h.to(dtype) @ weight, torch.full((5, 5), 0.2, dtype=dtype), atol=1e-3)


@pytest.mark.parametrize("failures", [1, 3])
def test_where_no_factor_can_be_made_that_of_a_larger_beta_leads_to_the_same_weights(
    failures: int,
) -> None:
    gram, sums = statistics(450, 300, torch.float32)
    tried = []

    def fail(gram: Tensor, beta: float) -> Factor | None:
        tried.append(beta)
        return factored(gram, beta) if len(tried) > failures else None

    exact = explicit(gram, sums, 1.0)
    found = solve(gram, sums, 1.0, factor=fail).double()
    assert torch.allclose(found, exact, atol=1e-6 * float(exact.abs().max()))
    assert tried == [10.0**i for i in range(failures + 1)]


def test_a_matrix_is_factored_once_while_factors_are_kept_and_again_once_it_has_changed() -> None:
    gram, sums = statistics(450, 60, torch.float32)
    rows = torch.randn(3, 60)
    other = gram.clone()

    def answers() -> list[Tensor]:
        return [solve(gram, sums, 1.0), whitened(gram, rows, 1.0), whitened(gram, rows, 2.0)]

    def betas(kept: Kept) -> list[float]:
        return [beta for _, _, beta, _ in kept.factors]

    alone = answers()
    with factors_kept() as kept:
        with factors_kept() as inner:
            first = answers()
        assert inner is kept and betas(kept) == [1.0, 2.0]
        assert all(map(torch.equal, alone, first)) and all(map(torch.equal, alone, answers()))
        assert betas(kept) == [1.0, 2.0]
        whitened(other, rows, 1.0)  # equal, but another one
        gram[:8].mul_(1.0).diagonal().add_(1.0)
        changed = answers()
        assert betas(kept) == [1.0, 2.0, 1.0, 1.0, 2.0]
        assert not torch.equal(changed[0], alone[0])
        solve(gram, sums, 1.0, factor=lambda *_: pytest.fail("was made again"))
    assert all(map(torch.equal, changed, answers()))
    with factors_kept(room=4 * gram.nbytes) as kept:
        answers()
    assert not kept.factors


@pytest.mark.parametrize("size", [1, COLUMNS - 1, COLUMNS, COLUMNS + 1, 2 * COLUMNS + 60])
def test_the_blocks_of_a_factor_are_those_of_the_whole(size: int) -> None:
    gram, _ = statistics(40, size, torch.float64)
    whole = torch.linalg.cholesky(gram + 0.5 * torch.eye(size, dtype=torch.float64))
    blocks = factored(gram, 0.5)
    assert blocks is not None and len(blocks) == -(-size // COLUMNS)
    for i, block in enumerate(blocks):
        here = slice(COLUMNS * i, COLUMNS * (i + 1))
        assert torch.allclose(block, whole[COLUMNS * i :, here], atol=1e-10)
    assert factored(gram, -1e5) is None


@pytest.mark.parametrize("size", [1, COLUMNS, COLUMNS + 100])
@pytest.mark.parametrize("classes", [1, CLASSES, CLASSES + 10])
def test_more_columns_and_classes_than_are_worked_on_at_a_time(size: int, classes: int) -> None:
    h = torch.randn(300, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gram = h.T @ h
    sums = h.T @ torch.eye(300, dtype=torch.float64)[:, :classes]
    assert torch.allclose(solve(gram, sums, 0.1), explicit(gram, sums, 0.1), atol=1e-11)


def test_a_solve_makes_no_second_matrix_but_half_of_one() -> None:
    """And COLUMNS rows of G in float64."""
    gram, sums = statistics(300, 8 * COLUMNS, torch.float32)
    most = 0
    sizes = dict[int, int]()

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            nonlocal most
            result = func(*args, **(kwargs or {}))
            for x in tree_leaves(result):
                if (
                    isinstance(x, Tensor)
                    and x.untyped_storage().data_ptr() != gram.untyped_storage().data_ptr()
                ):
                    place = x.untyped_storage()
                    if place.data_ptr() not in sizes:
                        sizes[place.data_ptr()] = place.nbytes()
                        weakref.finalize(place, sizes.pop, place.data_ptr(), None)
            most = max(most, sum(sizes.values()))
            return result

    with Watch():
        solve(gram, sums[:, :3], 1.0)
    assert 0.5 < most / gram.nbytes < 0.9


@pytest.mark.parametrize("size", [30, 300])
@pytest.mark.parametrize("condition", [1e2, 1e4, 8e6])
@pytest.mark.parametrize("learned", [True, False], ids=["class sums", "any right side"])
def test_float32_weights_are_those_of_float64_to_rounding(
    size: int, condition: float, learned: bool
) -> None:
    """Against numpy; 8e6 is the largest condition there is, as a smaller β is raised."""
    random = np.random.default_rng(0)
    basis, _ = np.linalg.qr(random.normal(size=(size, size)))
    values = np.logspace(-3, -9, size)
    values[0] = 1.0
    gram = torch.tensor((basis * values) @ basis.T).float()
    gram = (gram + gram.T) / 2
    beta = max(1 / condition, smallest_beta(gram))
    shifted = gram.double().numpy() + beta * np.eye(size)
    assert 0.7 * condition < np.linalg.cond(shifted) < 1.1 * condition
    right = (basis * np.sqrt(values)) @ basis.T @ np.eye(size)[:, :3]
    sums = torch.tensor(right if learned else random.normal(size=(size, 3))).float()
    exact = np.linalg.solve(shifted, sums.double().numpy())
    off = np.linalg.norm(solve(gram, sums, 1 / condition).numpy() - exact, axis=0)
    assert (off < torch.finfo(torch.float32).eps * np.linalg.norm(exact, axis=0)).all()


def test_a_class_of_one_picture_is_solved_as_well_as_one_of_thousands() -> None:
    h = torch.randn(4000, 60, generator=torch.Generator().manual_seed(0))
    targets = torch.zeros(4000, 2)
    targets[1:, 0], targets[0, 1] = 1, 1
    gram = h.T @ h
    sums = h.T @ targets
    residual = sums.double() - gram.double() @ solve(gram, sums, 1e-3).double()
    assert (residual.norm(dim=0) <= 1e-5 * sums.norm(dim=0)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gram_matrix_of_few_pictures_is_solved_by_some_of_its_columns(
    dtype: torch.dtype,
) -> None:
    gram, sums = statistics(20, 700, dtype)
    exact = explicit(gram, sums, 5.0)
    found = solve(gram, sums, 5.0, 20, factor=lambda *_: pytest.fail("was factored")).double()
    assert torch.allclose(found, exact, atol=1e-6 * float(exact.abs().max()))
    none = solve(torch.zeros(700, 700, dtype=dtype), torch.zeros(700, 2, dtype=dtype), 1.0, 1)
    assert none.shape == (700, 2) and not none.any()
    gram, sums = statistics(300, 700, dtype)  # of more than was said
    assert torch.equal(solve(gram, sums, 0.1, 3), solve(gram, sums, 0.1))
