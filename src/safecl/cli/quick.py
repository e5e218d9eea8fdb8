"""Import timm and torchvision without torch._dynamo, of which they need a function each in code that is not used here.

torch._dynamo, with sympy and triton behind it, takes a quarter of the time in which torch and timm are imported.
"""

import functools
import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

NAMES = DYNAMO, UTILS = "torch._dynamo", "torch._dynamo.utils"


class _StandIn(ModuleType):
    """Gives functions that import the real module when they are called; asked for anything else, it is imported now."""

    def __getattr__(self, name: str) -> Any:
        deferred = DEFERRED.get((self.__name__, name))
        if deferred is not None:
            return deferred
        if name.startswith("__") and (self.__name__, name) != (DYNAMO, "__path__"):
            raise AttributeError(name)  # such as __file__, for which inspect asks every module
        return getattr(_real(self.__name__), name)


def _is_compile_supported(device_type: str) -> bool:
    """torchvision.ops.roi_align asks this before it compiles."""
    return bool(_real(UTILS).is_compile_supported(device_type))


def _disable(function: Any = None, *options: Any, **more: Any) -> Any:
    """timm decorates a function of its NaFlexViT with this."""
    if isinstance(function, type):
        return _real(DYNAMO).disable(function, *options, **more)
    if function is None:
        return lambda one: _disable(one, *options, **more)

    @functools.wraps(function)
    def deferred(*arguments: Any, **named: Any) -> Any:
        return _real(DYNAMO).disable(function, *options, **more)(*arguments, **named)

    return deferred


DEFERRED: dict[tuple[str, str], Callable[..., Any]] = {
    (UTILS, "is_compile_supported"): _is_compile_supported,
    (DYNAMO, "disable"): _disable,
}


def _real(name: str) -> Any:
    _remove()
    return importlib.import_module(name)


def _remove() -> None:
    for name in NAMES:
        if isinstance(sys.modules.get(name), _StandIn):
            del sys.modules[name]


def import_timm() -> None:
    """Import torchvision and timm; afterwards torch._dynamo can be imported as ever."""
    import torch

    if "timm" in sys.modules or DYNAMO in sys.modules:
        return
    sys.modules |= {name: _StandIn(name) for name in NAMES}
    try:
        importlib.import_module("timm")
    finally:
        _remove()
        vars(torch).pop("_dynamo", None)
