"""The solver behind the ridge head."""

import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import safecl.heads.solve as module
from safecl.heads.solve import solve


def statistics(n: int, size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """G (size, size) and W̃ (size, 10) of ``n`` random features."""
    h = torch.randn(n, size, generator=torch.Generator().manual_seed(0), dtype=dtype)
    return h.T @ h, h.T @ torch.eye(n, dtype=dtype)[:, :10]


def explicit(gram: Tensor, sums: Tensor, beta: float) -> Tensor:
    return torch.linalg.solve(gram.double() + beta * torch.eye(len(gram), dtype=torch.float64), sums.double())


def test_a_singular_gram_matrix_is_solved_in_every_precision() -> None:
    h = torch.ones(5, 40)  # rank one
    gram, sums = h.T @ h, h.T @ torch.eye(5)
    for dtype in (torch.float32, torch.float64):
        weight = solve(gram.to(dtype), sums.to(dtype), 1e-30)
        assert weight.dtype == dtype
        assert torch.allclose(h.to(dtype) @ weight, torch.full((5, 5), 0.2, dtype=dtype), atol=1e-3)


@pytest.mark.parametrize("failures", [1, 3])
def test_where_no_factor_can_be_made_that_of_a_larger_beta_leads_to_the_same_weights(
    failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gram, sums = statistics(450, 300, torch.float32)
    real, tried = module._cholesky, []

    def fail(gram: Tensor, beta: float) -> module.Factor | None:
        tried.append(beta)
        return real(gram, beta) if len(tried) > failures else None

    monkeypatch.setattr(module, "_cholesky", fail)
    exact = explicit(gram, sums, 1.0)
    assert torch.allclose(solve(gram, sums, 1.0).double(), exact, atol=1e-5 * float(exact.abs().max()))
    assert tried == [10.0**i for i in range(failures + 1)]


def test_a_matrix_is_factored_once_while_factors_are_kept_and_again_once_it_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gram, sums = statistics(450, 60, torch.float32)
    rows, other = torch.randn(3, 60), gram.clone()
    real, made = module._cholesky, []
    monkeypatch.setattr(module, "_cholesky", lambda gram, beta: (made.append(beta), real(gram, beta))[1])

    def answers() -> list[Tensor]:
        return [solve(gram, sums, 1.0), module.whitened(gram, rows, 1.0), module.whitened(gram, rows, 2.0)]

    alone = answers()
    assert made == [1.0, 1.0, 2.0]
    with module.factors_kept():
        with module.factors_kept():
            first = answers()
        assert made[3:] == [1.0, 2.0]
        assert all(map(torch.equal, alone, first)) and all(map(torch.equal, alone, answers()))
        assert made[5:] == []
        module.whitened(other, rows, 1.0)  # equal, but another one
        gram[:8].mul_(1.0).diagonal().add_(1.0)
        changed = answers()
        assert made[5:] == [1.0, 1.0, 2.0] and not torch.equal(changed[0], alone[0])
    assert all(map(torch.equal, changed, answers())) and len(made) == 11
    monkeypatch.setattr(module, "free_memory", lambda device: 0)
    with module.factors_kept():
        answers()
    assert len(made) == 14


@pytest.mark.parametrize("size", [1, 7, 8, 9, 30])
def test_the_blocks_of_a_factor_are_those_of_the_whole(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COLUMNS", 8)
    gram, _ = statistics(40, size, torch.float64)
    whole = torch.linalg.cholesky(gram + 0.5 * torch.eye(size, dtype=torch.float64))
    blocks = module._cholesky(gram, 0.5)
    assert blocks is not None and len(blocks) == -(-size // 8)
    for i, block in enumerate(blocks):
        assert torch.allclose(block, whole[8 * i :, 8 * i : 8 * i + 8], atol=1e-12)
    assert module._cholesky(gram, -1e3) is None


@pytest.mark.parametrize("size", [1, 8, 21])
def test_weights_do_not_depend_on_the_sizes_of_the_blocks(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COLUMNS", 8)
    monkeypatch.setattr(module, "CLASSES", 4)
    gram, sums = statistics(40, size, torch.float64)
    assert torch.allclose(solve(gram, sums, 0.1), explicit(gram, sums, 0.1), atol=1e-12)


def test_a_solve_makes_no_second_matrix_but_half_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COLUMNS", 8)
    monkeypatch.setattr(module, "CLASSES", 1)
    gram, sums = statistics(300, 256, torch.float32)
    most, sizes = 0, dict[int, int]()

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal most
            result = func(*args, **(kwargs or {}))
            for x in tree_leaves(result):
                if isinstance(x, Tensor) and x.untyped_storage().data_ptr() != gram.untyped_storage().data_ptr():
                    place = x.untyped_storage()
                    if place.data_ptr() not in sizes:
                        sizes[place.data_ptr()] = place.nbytes()
                        weakref.finalize(place, sizes.pop, place.data_ptr(), None)
            most = max(most, sum(sizes.values()))
            return result

    with Watch():
        solve(gram, sums[:, :3], 1.0)
    assert 0.5 < most / gram.nbytes < 0.7


@pytest.mark.parametrize("condition", [1e2, 1e6])
def test_float32_solves_are_refined_to_float64_residuals(condition: float) -> None:
    generator = torch.Generator().manual_seed(0)
    basis, _ = torch.linalg.qr(torch.randn(30, 30, generator=generator, dtype=torch.float64))
    gram = ((basis * torch.logspace(0, -float(np.log10(condition)), 30, dtype=torch.float64)) @ basis.T).float()
    gram = (gram + gram.T) / 2
    sums = torch.randn(30, 3, generator=generator)
    beta = 1e-5
    weight = solve(gram, sums, beta)
    exact = torch.linalg.solve(gram.double() + beta * torch.eye(30, dtype=torch.float64), sums.double())
    assert torch.allclose(weight.double(), exact, atol=1e-6 * float(exact.abs().max()))


def test_a_class_of_one_picture_is_solved_as_well_as_one_of_thousands() -> None:
    h = torch.randn(4000, 60, generator=torch.Generator().manual_seed(0))
    targets = torch.zeros(4000, 2)
    targets[1:, 0], targets[0, 1] = 1, 1
    gram, sums = h.T @ h, h.T @ targets
    residual = sums.double() - gram.double() @ solve(gram, sums, 1e-3).double()
    assert (residual.norm(dim=0) <= 1e-5 * sums.norm(dim=0)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gram_matrix_of_few_pictures_is_solved_by_some_of_its_columns(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    gram, sums = statistics(20, 700, dtype)
    exact, real, tried = explicit(gram, sums, 5.0), module._cholesky, []
    monkeypatch.setattr(module, "_cholesky", lambda *given: tried.append(1) or real(*given))
    assert torch.allclose(solve(gram, sums, 5.0, 20).double(), exact, atol=1e-5 * float(exact.abs().max()))
    assert not tried
    none = solve(torch.zeros(700, 700, dtype=dtype), torch.zeros(700, 2, dtype=dtype), 1.0, 1)
    assert none.shape == (700, 2) and not none.any()
    gram, sums = statistics(300, 700, dtype)  # of more than was said
    assert torch.equal(solve(gram, sums, 0.1, 3), solve(gram, sums, 0.1)) and len(tried) == 2
