"""The base of every typed group of settings, and dotted names for nested values."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Immutable, and strict about names: an unknown key is an error, not ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one with dotted keys: ``{"a": {"b": 1}}`` → ``{"a.b": 1}``."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat
