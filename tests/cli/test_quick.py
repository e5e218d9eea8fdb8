"""Predictions from the shell import no more than they need."""

import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = """
import sys
import torch.utils.checkpoint  # which torchvision needs; up to some version of torch it imports sympy itself
own = {"sympy"} & sys.modules.keys()
from safecl.cli.main import main
sys.argv = ["safecl", "predict", "a.png", "--model", "m.safecl", "--device", "cpu"]
try:
    main()
except SystemExit as end:
    assert not end.code
assert {"torch._dynamo", "sympy"} & sys.modules.keys() == own
import torch, torchvision
from torchvision.ops import roi_align
boxes = torch.tensor([[0, 0.0, 0.0, 4.0, 4.0]])
assert roi_align(torch.ones(1, 1, 8, 8), boxes, 2).shape == (1, 1, 2, 2)
import torch._dynamo
assert torch._dynamo.is_compiling() is False and torch._dynamo.utils.is_compile_supported("cpu") in (True, False)
"""


def test_predictions_from_the_shell_do_without_dynamo_which_still_works_afterwards(
    tmp_path: Path, new_model: Any, lesson: Any
) -> None:
    from PIL import Image

    images, labels = lesson("ab")
    model = new_model("simplecil")
    model.learn(images, labels)
    model.save(tmp_path / "m.safecl")
    Image.fromarray(images[0]).save(tmp_path / "a.png")
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr
