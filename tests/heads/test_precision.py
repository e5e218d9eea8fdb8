"""float64 on every device, and features that are finite."""

import pytest
import torch

from safecl.errors import SafeclError
from safecl.heads.precision import check_finite, precise


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64])
def test_precise_numbers_are_float64_and_the_same(dtype: torch.dtype) -> None:
    values = torch.arange(5).to(dtype)
    assert precise(values).dtype == torch.float64 and torch.equal(precise(values), torch.arange(5).double())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_one_value_that_is_not_finite_is_refused(value: float) -> None:
    check_finite(torch.zeros(3))
    check_finite(torch.zeros(0))
    with pytest.raises(SafeclError, match="not finite"):
        check_finite(torch.tensor([0.0, value]))
