"""Elsewhere than on CUDA a step is the function itself."""

import pytest
import torch
from torch import Tensor

from safecl.engine.cuda_graph import CudaGraph


@pytest.mark.parametrize("on", [True, False])
def test_without_a_gpu_every_call_is_a_call(on: bool) -> None:
    calls: list[int] = []

    def function(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        calls.append(len(x))
        return {"sum": x + y}

    step = CudaGraph(function, torch.device("cpu"), on, say=pytest.fail)
    for n in (2, 2, 2, 1, 2):
        assert step(torch.ones(n), torch.ones(n))["sum"].tolist() == [2.0] * n
    assert calls == [2, 2, 2, 1, 2]
