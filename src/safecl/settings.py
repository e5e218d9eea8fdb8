"""The base of every typed group of settings, what is wrong with a value, and dotted names for
nested values.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sized
from typing import Any, ClassVar, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic_core import ErrorDetails, PydanticKnownError

from safecl.errors import SafeclError, Settable, unknown


class With(NamedTuple):
    """What a setting needs to act: another one of its group, dotted if it is further inside, and
    some of its values.

    Without ``values``, a number above ``more``, or a list of more entries; with ``unless``, any but
    those, for example one of ``values``. ``advise``: whether to say which.
    """

    other: str
    values: tuple[Any, ...] = ()
    more: int = 0
    advise: bool = True
    unless: tuple[Any, ...] = ()

    def missing(self, group: Any) -> tuple[Any, str] | None:
        """What stands there in its place, and what would do, if this is not what ``group`` has."""
        now = inside(group, self.other)
        if self.values:
            acts = now not in self.unless if self.unless else now in self.values
            return None if acts else (now, f"{self.other}={_typed(self.values[0])}")
        if isinstance(now, Sized):
            return (
                None if len(now) > self.more else (now, f"{self.more + 1} or more of {self.other}")
            )
        return None if (now or 0) > self.more else (now, f"{self.other} above {self.more}")


class Idle(NamedTuple):
    """A setting that means nothing beside ``other``, and the error that says so; both by their
    dotted names.
    """

    key: str
    other: str
    error: SafeclError


class Settings(BaseModel):
    """Immutable, and strict about names: an unknown key is an error, not ignored."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )
    acts_with: ClassVar[Mapping[str, tuple[With, ...]]] = {}  # by field, all that it needs

    @classmethod
    def kinds(cls) -> "list[type[Settings]]":
        """The classes that a group of this type may be of."""
        return [cls]

    def idle(self, key: str, above: str = "") -> Idle | None:
        """Why a dotted ``key`` inside means nothing beside the others here, if so; ``above``: the
        name of the group.
        """
        if is_switch(key) and not inside(self, key):  # what is off asks for nothing
            return None
        for needed in self.acts_with.get(key, ()):
            if found := needed.missing(self):
                other = f"{above}{needed.other}"
                told = {"key": f"{above}{key}", "other": other, "value": _typed(found[0])}
                setting = found[1].replace(needed.other, other)
                error = (
                    Settable("setting.idle", **told, setting=setting)
                    if needed.advise
                    else SafeclError("setting.idle.bare", **told)
                )
                return Idle(f"{above}{key}", other, error)
        return None


def of_kind(tag: str, kinds: Callable[[], Mapping[str, type[Settings]]]) -> BeforeValidator:
    """Reads a group of several ``kinds``, told apart by the key ``tag``; packages may bring more of
    them.
    """

    def read(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        if tag not in value:
            raise PydanticKnownError("union_tag_not_found", {"discriminator": repr(tag)})
        kind = str(value[tag])
        if kind not in kinds():
            expected = ", ".join(map(repr, kinds()))
            told = {"discriminator": repr(tag), "tag": kind, "expected_tags": expected}
            raise PydanticKnownError("union_tag_invalid", told)
        return kinds()[kind].model_validate(value)

    return BeforeValidator(read)


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


def explain(
    error: ErrorDetails, key: str, where: str = "", *, numbers: bool = False
) -> SafeclError:
    """One of pydantic's errors on ``key`` as a sentence; ``numbers``: whether a number may stand
    there as well.
    """
    kind = error["type"]
    given = error.get("input")
    if kind == "literal_error":
        choices = re.findall(r"'([^']+)'", error["ctx"]["expected"])
        return unknown(f"{key} =", str(given), [*choices, "a number"] if numbers else choices)
    message = error["msg"].removeprefix("Value error, ").rstrip(".")
    # a check of a whole group: it names the keys itself
    if kind == "value_error" and isinstance(given, Mapping):
        return SafeclError("setting.group.contradiction", key=key, message=message)
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
    return SafeclError("setting.value.wrong", key=key, given=given, where=where, reason=reason)


def idle(settings: Settings, keys: Iterable[str]) -> Iterator[Idle]:
    """Those of the dotted ``keys`` that mean nothing beside the other settings, whatever their
    values.
    """
    for key in keys:
        parts = key.split(".")
        for depth in range(len(parts)):
            above = "".join(f"{part}." for part in parts[:depth])
            group = inside(settings, ".".join(parts[:depth]))
            if isinstance(group, Settings) and (
                found := group.idle(".".join(parts[depth:]), above)
            ):
                yield found
                break


def refuse_idle(settings: Settings, given: Mapping[str, Any], chosen: Collection[str] = ()) -> None:
    """Refuse the first of the nested values ``given`` that means nothing beside the others, unless
    it is the default; a switch that is given as on asks for something, default or not.

    One whose other setting is among the keys ``chosen`` is left: who gave it could not know.
    """
    for found in idle(settings, flatten(given)):
        group, _, name = found.key.rpartition(".")
        default = type(inside(settings, group)).model_fields[name].default
        value = inside(settings, found.key)
        if (is_switch(name) or value != default) and found.other not in chosen:
            raise found.error


def is_switch(key: str) -> bool:
    """Whether a dotted key says if its group is used."""
    return key.rpartition(".")[2] == "use"


def inside(group: Any, key: str) -> Any:
    """What a dotted ``key`` names inside of a group; the group itself for none."""
    for part in filter(None, key.split(".")):
        group = getattr(group, part, None)
    return group


def _typed(value: Any) -> str:
    """As one writes it in a word."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple | list) else str(value)


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one with dotted keys: ``{"a": {"b": 1}}`` → ``{"a.b": 1}``."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= (
            flatten(value, f"{prefix}{key}.")
            if isinstance(value, Mapping)
            else {f"{prefix}{key}": value}
        )
    return flat
