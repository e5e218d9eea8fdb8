"""The base of every typed group of settings, what is wrong with a value, and dotted names for nested values."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict
from pydantic_core import ErrorDetails

from safecl.errors import SafeclError, unknown


class Settings(BaseModel):
    """Immutable, and strict about names: an unknown key is an error, not ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)
    acts_with: ClassVar[Mapping[str, tuple[str, tuple[Any, ...]]]] = {}  # by field, another and which of its values


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


def explain(error: ErrorDetails, key: str, where: str = "", *, numbers: bool = False) -> SafeclError:
    """One of pydantic's errors on ``key`` as a sentence; ``numbers``: whether a number may stand there as well."""
    kind, given = error["type"], error.get("input")
    if kind == "literal_error":
        choices = re.findall(r"'([^']+)'", error["ctx"]["expected"])
        return unknown(f"{key} =", str(given), [*choices, "a number"] if numbers else choices)
    message = error["msg"].removeprefix("Value error, ").rstrip(".")
    if kind == "value_error" and isinstance(given, Mapping):  # a check of a whole group: it names the keys itself
        return SafeclError(f"The settings of {key} do not fit together: {message}.")
    needed = NEEDED.get(kind.partition("_")[0])
    if kind in LIMITS:
        name, text = LIMITS[kind]
        reason = text.format(f"{error['ctx'][name]:g}")
    elif needed is not None and kind.endswith(("_type", "_parsing", "_from_float", "_number")):
        reason = needed
    elif kind in ("tuple_type", "list_type"):
        reason = f"it is a list, for example {key}=[{given}]"
    else:
        reason = message[0].lower() + message[1:]
    return SafeclError(f"{key}={given}{where} is wrong: {reason}.")


def idle(settings: Settings, given: Mapping[str, Any]) -> dict[str, str]:
    """A sentence on each dotted key whose ``given`` value means nothing beside the others, unless it is the default."""
    found = {}
    for key, value in given.items():
        *groups, name = key.split(".")
        group: Any = settings
        for part in groups:
            group = getattr(group, part, None)
        other, values = getattr(group, "acts_with", {}).get(name, ("", ("",)))
        if getattr(group, other, "") not in values and value != type(group).model_fields[name].default:
            now, needed = (".".join([*groups, f"{other}={one}".lower()]) for one in (getattr(group, other), values[-1]))
            found[key] = f"{key} means nothing with {now}; omit it, or set {needed}."
    return found


def refuse_idle(settings: Settings, given: Mapping[str, Any]) -> None:
    """Refuse the first of the nested values ``given`` that means nothing beside the others."""
    for sentence in idle(settings, flatten(given)).values():
        raise SafeclError(sentence)


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one with dotted keys: ``{"a": {"b": 1}}`` → ``{"a.b": 1}``."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat
