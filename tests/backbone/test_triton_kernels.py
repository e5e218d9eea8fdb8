"""The Triton kernels against the torch lines they stand for, on a CPU by Triton's interpreter.

The interpreter needs a process of its own; ``test_cuda.py`` holds the compiled kernels to the same.
"""

import inspect
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

SCALES = (1.0, 0.1, 0.01, 0.001, 1e-6, 0.0, -0.3)
SHIFTS = (0.0, 0.3, -2.0)


def test_interpreted_kernels_give_what_torch_gives() -> None:
    pytest.importorskip("triton")
    # The interpreter keeps bfloat16 as integers and multiplies those; float16 goes the same way
    # through the kernels.
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def compare(
    dtype: torch.dtype, tolerance: float, n: int, inputs: int, width: int, bias: bool
) -> None:
    from safecl.backbone import kernels
    from safecl.backbone import triton_kernels as fast

    generator = torch.Generator().manual_seed(n)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    def close(found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
        for one, other in zip(found, expected, strict=True):
            allowed = tolerance * max(1.0, float(other.abs().max()))
            assert one.dtype == other.dtype and torch.allclose(
                one.float(), other.float(), rtol=0, atol=allowed
            )

    g = draw(n, width).to(dtype)
    x = draw(n, inputs).to(dtype)
    y = draw(n, width).to(dtype)
    weight = draw(width, inputs).to(dtype)
    added = draw(width).to(dtype) if bias else None
    scale = torch.tensor(SCALES).repeat(width)[:width].contiguous()
    shift = torch.tensor(SHIFTS).repeat_interleave(len(SCALES)).repeat(width)[:width].contiguous()
    close(
        fast.merged_weights(weight, added, scale, shift),
        kernels.merged_weights(weight, added, scale, shift),
    )
    for gelu_in, gelu_out in ((False, False), (False, True), (True, False)):
        u = F.linear(F.gelu(x) if gelu_in else x, weight, added)
        z = torch.addcmul(shift, u.float(), scale).to(dtype)
        arguments = g, z, x, weight, added, scale, shift
        found = fast.scale_gradients(
            *arguments, gelu_in, gelu_out, kernels.MIN_SCALE, kernels.MAX_RATIO
        )
        close(found, kernels.scale_gradients(*arguments, gelu_in=gelu_in, gelu_out=gelu_out))
    norm = draw(width)
    offset = draw(width)
    _, mean, spread = kernels.layer_norm(y, norm, offset, 1e-6)
    close(fast.layer_norm(y, norm, offset, 1e-6)[:1], kernels.layer_norm(y, norm, offset, 1e-6)[:1])
    arguments = g, y, mean, spread, norm
    close(
        (fast.layer_norm_gradient(*arguments),), (kernels.layer_norm_gradient(*arguments, offset),)
    )
    arguments = *arguments, offset if bias else None, scale
    close(fast.norm_scale_gradients(*arguments), kernels.norm_scale_gradients(*arguments))


def index_one_element_arrays() -> None:
    """Loop bounds are arrays of one element to the interpreter, which new versions of numpy take
    for no number.
    """
    from triton.runtime import interpreter

    before = interpreter._patch_lang_tensor
    if "scope" in inspect.signature(before).parameters:

        def after(tensor: type, scope: object) -> None:
            before(tensor, scope)
            scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))  # type: ignore[attr-defined]

        interpreter._patch_lang_tensor = after


if __name__ == "__main__":
    index_one_element_arrays()
    compare(torch.float32, 1e-5, 1, 24, 24, True)
    compare(torch.float32, 1e-5, 150, 70, 40, False)
    compare(torch.float16, 1e-2, 37, 33, 70, True)
