"""timm without the compiler of torch.

timm, and torchvision below it, ask that compiler while they are imported to leave a few functions
alone, and importing it takes two thirds as long as torch itself. Nothing here compiles, so the
question waits until one of those functions is called.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

COMPILER = "torch._dynamo.utils"


class Waiting(ModuleType):
    """Stands in for a module whose functions are only called later."""

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            return getattr(importlib.import_module(self.__name__), name)(*args, **options)

        if name.startswith("__"):
            raise AttributeError(name)
        return call


@contextmanager
def without_compiler() -> Iterator[None]:
    """Meanwhile, modules are imported without the compiler, unless it has been before."""
    import torch
    from torch._compile import _disable_dynamo

    if COMPILER in sys.modules:
        yield
        return
    waiting = Waiting(COMPILER)
    disable = torch.compiler.disable

    def later(fn: Callable[..., Any] | None = None, recursive: bool = True, **_: Any) -> Any:
        return _disable_dynamo(fn, recursive)

    sys.modules[COMPILER] = waiting
    torch.compiler.disable = later
    try:
        yield
    finally:
        torch.compiler.disable = disable
        if sys.modules.get(COMPILER) is waiting:
            del sys.modules[COMPILER]


class Quickly(MetaPathFinder):
    """Finds timm once, to be imported so."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "timm":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def quickly(module: ModuleType) -> None:
                with without_compiler():
                    execute(module)

            loader.exec_module = quickly
        return spec


def import_timm_quickly() -> None:
    """Whoever imports timm first from now on."""
    if "timm" not in sys.modules:
        sys.meta_path.insert(0, Quickly())
