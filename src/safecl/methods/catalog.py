"""Every method by its name. A method is found by its two files; there is nothing to register."""

import importlib
import inspect
import pkgutil
from functools import cache
from typing import TYPE_CHECKING, cast

import safecl.methods.settings
from safecl.methods.settings.base import MethodSettings

if TYPE_CHECKING:
    from safecl.backbone.backbone import Backbone
    from safecl.methods.method import Method

MAX_NUMBERS = 1 << 30  # that a method makes, whichever of its sizes are multiplied: 4 GB


@cache
def method_settings() -> dict[str, type[MethodSettings]]:
    """The settings class of every method, by the method's name."""
    found: dict[str, type[MethodSettings]] = {}
    for file in pkgutil.iter_modules(safecl.methods.settings.__path__):
        if file.name != "base":
            module = importlib.import_module(f"{safecl.methods.settings.__name__}.{file.name}")
            for kind in vars(module).values():
                if inspect.isclass(kind) and kind.__module__ == module.__name__ and issubclass(kind, MethodSettings):
                    found[str(kind.model_fields["name"].default)] = kind
    return dict(sorted(found.items()))


def method_class(settings: type[MethodSettings] | MethodSettings) -> "type[Method]":
    """The algorithm that goes with ``settings``."""
    kind = settings if inspect.isclass(settings) else type(settings)
    module = importlib.import_module(f"safecl.methods.{kind.__module__.rpartition('.')[2]}")
    own = [found for found in vars(module).values() if inspect.isclass(found) and found.__module__ == module.__name__]
    (found,) = (found for found in own if hasattr(found, "outputs"))
    return cast("type[Method]", found)


def make_method(settings: MethodSettings, backbone: "Backbone", seed: int = 0) -> "Method":
    """A method that has learned nothing yet."""
    from safecl.ram import Bounded

    many = f"The method {settings.name}, as it is set, would have more than {MAX_NUMBERS:,} numbers of its own"
    with Bounded(MAX_NUMBERS, f"{many}; lower its sizes."):
        return method_class(settings)(backbone, settings, seed).to(backbone.device)
