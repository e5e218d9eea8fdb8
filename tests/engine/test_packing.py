"""Symmetric matrices in half the room."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from safecl.engine.packing import pack, symmetric, unpack


@given(st.integers(2, 30), st.sampled_from([torch.float32, torch.float64, torch.bfloat16]))
def test_a_packed_matrix_comes_back_to_the_bit(size: int, dtype: torch.dtype) -> None:
    matrix = torch.randn(size, size, generator=torch.Generator().manual_seed(size))
    matrix = (matrix + matrix.T).to(dtype)
    packed = pack(matrix)
    assert symmetric(matrix) and packed.numel() == size * (size + 1) // 2
    assert torch.equal(unpack(packed, size), matrix)


@pytest.mark.parametrize(
    "matrix",
    [torch.ones(1, 1), torch.ones(3), torch.ones(2, 3), torch.tensor([[0.0, 1.0], [2.0, 0.0]]),
     torch.full((2, 2), float("nan")), torch.ones(2, 2, dtype=torch.int64), torch.zeros(0, 0)],
    ids=["one", "vector", "rectangle", "crooked", "nan", "integers", "empty"],
)  # fmt: skip
def test_what_is_not_worth_packing_is_left_as_it_is(matrix: torch.Tensor) -> None:
    assert not symmetric(matrix)
