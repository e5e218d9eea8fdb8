"""Symmetric matrices as M (M + 1) / 2 numbers, float64 on every device, and features that are
finite.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from safecl.heads.tensors import check_finite, pack, precise, symmetric, unpack
from tests.conftest import raises


@given(
    st.integers(1, 30),
    st.sampled_from([(), (3,), (0,)]),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_packed_matrices_come_back_to_the_bit(
    size: int, batch: tuple[int, ...], dtype: torch.dtype
) -> None:
    matrix = torch.randn(*batch, size, size, generator=torch.Generator().manual_seed(size))
    matrix = (matrix + matrix.mT).to(dtype)
    packed = pack(matrix)
    assert packed.shape[:-2] == batch and packed.shape[-2:].numel() == size * (size + 1) // 2
    assert torch.equal(unpack(packed, size), matrix)


@given(st.integers(1, 30))
def test_packed_matrices_add_up_like_the_matrices_themselves(size: int) -> None:
    one, other = torch.randn(
        2, size, size, generator=torch.Generator().manual_seed(size), dtype=torch.float64
    )
    one = one + one.mT
    other = other + other.mT
    assert torch.equal(unpack(pack(one) + pack(other), size), one + other)


@pytest.mark.parametrize("size", [2, 5])
def test_a_symmetric_matrix_is_worth_packing(size: int) -> None:
    assert symmetric(torch.ones(size, size))


@pytest.mark.parametrize(
    "matrix",
    [
        torch.ones(1, 1),
        torch.ones(3),
        torch.ones(2, 3),
        torch.tensor([[0.0, 1.0], [2.0, 0.0]]),
        torch.full((2, 2), float("nan")),
        torch.ones(2, 2, dtype=torch.int64),
        torch.zeros(0, 0),
        torch.ones(2, 2, 2),
    ],
    ids=["one", "vector", "rectangle", "crooked", "nan", "integers", "empty", "batch"],
)
def test_what_is_not_worth_packing_is_left_as_it_is(matrix: torch.Tensor) -> None:
    assert not symmetric(matrix)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64]
)
def test_precise_numbers_are_float64_and_the_same(dtype: torch.dtype) -> None:
    values = torch.arange(5).to(dtype)
    assert precise(values).dtype == torch.float64 and torch.equal(
        precise(values), torch.arange(5).double()
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_one_value_that_is_not_finite_is_refused(value: float) -> None:
    check_finite(torch.zeros(3))
    check_finite(torch.zeros(0))
    with raises("features.not-finite"):
        check_finite(torch.tensor([0.0, value]))
