"""What importing the package does and does not do."""

import importlib
import os
import pkgutil
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import safecl


def python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_public_name_is_there_and_loaded_only_when_it_is_used() -> None:
    assert set(safecl.__all__) <= set(dir(safecl))
    for name in safecl.__all__:
        assert getattr(safecl, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = safecl.nothing  # type: ignore[attr-defined]
    assert python("import safecl, sys; print('torch' in sys.modules)") == "False"


def test_settings_are_read_without_anything_heavy() -> None:
    code = (
        "import sys; from safecl.experiments.config import load; load('safe', ['pet=adapter',"
        " 'stream=cifar100'])"
    )
    assert (
        python(
            f"{code}; print([m for m in ('torch', 'timm', 'accelerate', 'numpy') if m in"
            " sys.modules])"
        )
        == "[]"
    )


# slow to import, and needed by none of what a person waits for
SLOW = ("sklearn", "scipy", "accelerate", "matplotlib", "torch._dynamo", "sympy", "pandas")
OF_NETWORKS = ("timm", "torchvision", "huggingface_hub")


def test_what_is_slow_to_import_waits_until_it_is_needed(
    new_model: Any, lesson: Any, tmp_path: Path
) -> None:
    """One process: a classifier is made, a model answers, the shell's does, and timm is whole."""
    model = new_model("ranpac")
    images, labels = lesson("ab")
    model.learn(images, labels)
    model.save(tmp_path / "m.safecl")
    Image.fromarray(images[0]).save(tmp_path / "p.png")
    lines = [
        "import sys, os, torch, safecl",
        f"os.chdir({str(tmp_path)!r})",
        "disable = torch.compiler.disable",
        f"there = lambda *more: print([m for m in (*{SLOW}, *more) if m in sys.modules])",
        "safecl.ContinualClassifier()",
        f"there(*{OF_NETWORKS})",
        "model = safecl.load('m.safecl', device='cpu')",
        "model.get_params(), repr(model), model.classes_, model.predict(['p.png'])",
        "from safecl.cli.main import main",
        "sys.exit = print",
        "sys.argv = ['safecl', 'predict', 'p.png', '-m', 'm.safecl', '--device', 'cpu']",
        "main()",
        "there()",
        "import timm, torchvision",
        "print(disable is torch.compiler.disable, timm.is_model('naflexvit_base_patch16_gap'))",
        "boxes = [torch.tensor([[0.0, 0.0, 2.0, 2.0]])]",
        "print(torchvision.ops.roi_align(torch.ones(1, 1, 4, 4), boxes, 1).item())",
    ]
    found = python("\n".join(lines)).splitlines()
    assert [line for line in found if "p.png" not in line] == ["[]", "0", "[]", "True True", "1.0"]


def test_help_is_printed_without_anything_heavy() -> None:
    code = "import sys; from safecl.cli.main import main; sys.exit = print; sys.argv = ['safecl']"
    heavy = (*SLOW, *OF_NETWORKS, "torch", "numpy", "pydantic", "yaml", "filelock")
    found = python(f"{code}; main(); print([m for m in {heavy} if m in sys.modules])")
    assert found.endswith("[]")


def test_every_module_can_be_imported_where_there_is_no_posix() -> None:
    """As on Windows: modules and functions that only POSIX has are taken away first, in a fork of
    this process.
    """
    for name in [
        "torch",
        "timm",
        "accelerate",
        "filelock",
        "psutil",
        "pydantic",
        "rich",
        "matplotlib",
        "jinja2",
        "PIL.Image",
        "typer",
    ]:
        importlib.import_module(name)
    child = os.fork()
    if child == 0:
        try:
            without_posix()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def without_posix() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "safecl"]:
        del sys.modules[name]
    for name in ("fcntl", "resource", "pwd", "grp", "termios"):
        sys.modules[name] = None  # type: ignore[assignment]
    for name in ("fork", "sched_getaffinity", "sysconf", "pwrite", "register_at_fork", "getuid"):
        if hasattr(os, name):
            delattr(os, name)
    package = importlib.import_module("safecl")
    count = 0
    for module in pkgutil.walk_packages(package.__path__, "safecl."):
        if not module.name.endswith(("__main__", "triton_kernels")):
            importlib.import_module(module.name)
            count += 1
    assert count > 150 and package is not safecl
