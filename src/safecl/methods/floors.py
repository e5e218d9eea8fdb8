"""Where the floors join: the class of a method as it is set.

A method stands on the ground floor, and asks questions in methods of a few lines. A file of
``beyond/`` or ``variants/`` has one class that answers some of them otherwise, and may ask
``super()`` for the answer below. The settings say which of them hold (``MethodSettings.floors``);
no other is imported.
"""

import importlib
import inspect
from functools import cache

from safecl.methods.method import Method


def on_floors(method: type[Method], floors: tuple[str, ...]) -> type[Method]:
    """``method`` with those of the ``floors`` on it, the uppermost first, such as "beyond.pilots";
    a floor that another one stands on comes after it.
    """
    return _composed(method, floors) if floors else method


@cache
def _composed(method: type[Method], floors: tuple[str, ...]) -> type[Method]:
    stands = {"__module__": method.__module__, "__doc__": method.__doc__, "floors": floors}
    return type(method.__name__, (*map(floor, floors), method), stands)


def floor(name: str) -> type[Method]:
    """The class in a file of this name."""
    module = importlib.import_module(f"safecl.methods.{name}")
    (found,) = (
        kind
        for kind in vars(module).values()
        if inspect.isclass(kind) and kind.__module__ == module.__name__ and issubclass(kind, Method)
    )
    return found
