"""Every method by its name. A method is found by its two files; there is nothing to register."""

import importlib
import inspect
import pkgutil
from functools import cache
from typing import TYPE_CHECKING, cast, get_args

import safecl.methods.settings
from safecl.methods.settings.base import Kind, MethodSettings

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
                    check(kind)
                    found[str(kind.model_fields["name"].default)] = kind
    return dict(sorted(found.items()))


def check(settings: type[MethodSettings]) -> None:
    """Refuse a settings class that lacks something, in a sentence for whoever writes it."""
    where, name = settings.__name__, settings.__module__.rpartition(".")[2]
    lacking = [key for key in ("title", "paper", "kind") if not getattr(settings, key, "")]
    if lacking:
        raise TypeError(f"{where} must say its {', '.join(lacking)}.")
    if settings.kind not in get_args(Kind):
        raise TypeError(f"{where}.kind = {settings.kind!r} must be one of: {', '.join(get_args(Kind))}.")
    if settings.model_fields["name"].default != name:
        raise TypeError(f"{where}.name must be {name!r}, as its file is called, by default.")
    required = [key for key, field in settings.model_fields.items() if field.is_required()]
    if required:
        raise TypeError(f"{where}.{required[0]} needs a default.")


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
