"""The base of every typed group of settings, and dotted names for nested values."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic_core import ErrorDetails


class Settings(BaseModel):
    """Immutable, and strict about names: an unknown key is an error, not ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)


NEEDED = {
    "int": "a whole number is needed",
    "float": "a number is needed",
    "finite": "a finite number is needed",
    "bool": "true or false is needed",
    "string": "a word is needed",
}
LIMITS = {
    "greater_than": ("gt", "it must be above {}"),
    "greater_than_equal": ("ge", "it must be {} or more"),
    "less_than": ("lt", "it must be below {}"),
    "less_than_equal": ("le", "it must be {} or less"),
}


def reason(error: ErrorDetails) -> str:
    """What one of pydantic's errors asks for, in a few words without a full stop."""
    kind = error["type"]
    if kind in LIMITS:
        name, text = LIMITS[kind]
        return text.format(f"{error['ctx'][name]:g}")
    needed = NEEDED.get(kind.partition("_")[0])
    if needed is not None and kind.endswith(("_type", "_parsing", "_from_float", "_number")):
        return needed
    message = error["msg"].removeprefix("Value error, ").rstrip(".")
    return message[0].lower() + message[1:]


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one with dotted keys: ``{"a": {"b": 1}}`` → ``{"a.b": 1}``."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat
