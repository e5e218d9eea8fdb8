"""Every method by its name: ours are found by their two files, others by their entry points; there
is nothing to register.
"""

import importlib
import inspect
import pkgutil
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import safecl.methods.settings
from safecl.entry_points import Catalog
from safecl.errors import SafeclError
from safecl.methods.settings.base import MethodSettings

if TYPE_CHECKING:
    from safecl.backbone.backbone import Backbone
    from safecl.methods.method import Method

MAX_NUMBERS = 1 << 30  # that a method makes, whichever of its sizes are multiplied: 4 GB


@cache
def method_settings() -> Catalog[type[MethodSettings]]:
    """The settings class of every method, by the method's name."""
    return Catalog("methods", _own(), _settings_of)


def _own() -> dict[str, type[MethodSettings]]:
    found: dict[str, type[MethodSettings]] = {}
    for file in pkgutil.iter_modules(safecl.methods.settings.__path__):
        if file.name != "base":
            module = importlib.import_module(f"{safecl.methods.settings.__name__}.{file.name}")
            for kind in vars(module).values():
                if (
                    inspect.isclass(kind)
                    and kind.__module__ == module.__name__
                    and issubclass(kind, MethodSettings)
                ):
                    found[str(kind.model_fields["name"].default)] = kind
    return dict(sorted(found.items()))


def method_class(settings: type[MethodSettings] | MethodSettings) -> "type[Method]":
    """The algorithm that goes with ``settings``; of values, with the floors that they switch on."""
    kind = settings if inspect.isclass(settings) else type(settings)
    name = str(kind.model_fields["name"].default)
    if name in method_settings().foreign:
        return cast("type[Method]", method_settings().named(name))
    module = importlib.import_module(f"safecl.methods.{kind.__module__.rpartition('.')[2]}")
    own = [
        found
        for found in vars(module).values()
        if inspect.isclass(found) and found.__module__ == module.__name__
    ]
    (found,) = (found for found in own if hasattr(found, "outputs"))
    method = cast("type[Method]", found)
    if inspect.isclass(settings) or not settings.floors:
        return method
    from safecl.methods.floors import on_floors

    return on_floors(method, settings.floors)


def _settings_of(name: str, found: Any) -> type[MethodSettings]:
    """The settings class that somebody's method says it has: ``settings: MineSettings``."""
    from safecl.methods.method import Method

    every = method_settings()
    if not (inspect.isclass(found) and issubclass(found, Method)):
        raise every.misfit(name, "a class that extends safecl.Method")
    kind = inspect.get_annotations(found, eval_str=True).get("settings")
    if not (inspect.isclass(kind) and issubclass(kind, MethodSettings)):
        raise every.misfit(name, "a method that says 'settings: …' of a MethodSettings of its own")
    if kind.model_fields["name"].default != name:
        raise every.misfit(name, f"a method whose settings have the name {name!r}")
    return kind


def make_method(settings: MethodSettings, backbone: "Backbone", seed: int = 0) -> "Method":
    """A method that has learned nothing yet."""
    from safecl.ram import Bounded

    error = SafeclError("method.too-large", name=settings.name, most=MAX_NUMBERS)
    with Bounded(MAX_NUMBERS, error):
        return method_class(settings)(backbone, settings, seed).to(backbone.device)
