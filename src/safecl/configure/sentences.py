"""What is wrong with a configuration, in one sentence and in the user's words; and every key there
is.
"""

import difflib
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from safecl.configure.layers import TAGS, method_groups, models
from safecl.errors import SafeclError, unknown
from safecl.methods.catalog import method_settings
from safecl.settings import explain


def sentence(
    errors: Sequence[ErrorDetails], source: str, method: str, run: type[BaseModel]
) -> SafeclError:
    """The first of pydantic's errors as a user would say it; ``method``: whose settings are
    meant.
    """
    error = errors[0]
    numbers = False
    if error["type"] != "literal_error" and isinstance(error.get("input"), str):
        # Where a number or a word may stand, pydantic complains of both; the complaint on words
        # helps more.
        words = [
            e for e in errors if e["type"] == "literal_error" and e["loc"][:-1] == error["loc"][:-1]
        ]
        error, numbers = (words[0], True) if words else (error, False)
    known = keys(run, method)
    extra = error["type"] == "extra_forbidden"
    place = spelt(error["loc"])
    given = error.get("input")
    if not extra and ".".join(place[:-1]) in known and ".".join(place) not in known:
        place.pop()  # a position in a list, or a member of a union
    key = ".".join(place)
    inner = next(iter(given)) if isinstance(given, dict) and given else None
    leaf = (key in known or key in method_groups()) and not any(
        name.startswith(f"{key}.") for name in known
    )
    if leaf and inner not in (None, TAGS.get(key)):  # keys inside something that has none
        place = [*place, str(inner)]
        extra = True
        key = ".".join(place)
    if extra:
        return _no_such_key(key, place, known, method, run)
    if error["type"] in ("union_tag_invalid", "union_tag_not_found"):
        tag = TAGS[place[-1]]
        if error["type"] == "union_tag_not_found":
            return SafeclError("setting.kind.missing", key=key, tag=tag)
        return unknown(
            key, str(error["ctx"]["tag"]), re.findall(r"'([^']+)'", error["ctx"]["expected_tags"])
        )
    where = f" in {source}" if source.endswith((".yaml", ".yml")) else ""
    if error["type"] in ("model_type", "model_attributes_type"):
        inner = next((name for name in known if name.startswith(f"{key}.")), f"{key}.…")
        return SafeclError("setting.group", key=key, given=given, where=where, inner=inner)
    return explain(error, key, where, numbers=numbers)


def spelt(loc: Sequence[int | str]) -> list[str]:
    """Where something stands, as a user writes it: no ``method`` before its groups."""
    place = [*map(str, loc)]
    return (
        place[1:]
        if len(place) > 1 and place[0] == "method" and place[1] in method_groups()
        else place
    )


@cache
def keys(run: type[BaseModel], method: str | None = None) -> list[str]:
    """Every key that can be set, dotted; of one ``method`` or of all."""
    return sorted({key for key, *_ in all_keys(run, method)})


def all_keys(
    model: type[BaseModel], method: str | None = None, above: str = ""
) -> Iterator[tuple[str, Any, type[BaseModel]]]:
    """(key, its field, the settings class it stands in) for every key; a key of several classes
    comes several times.
    """
    for name, field in model.model_fields.items():
        inside = models(field.annotation)
        key = name if not above or (inside and name in method_groups()) else f"{above}.{name}"
        yield key, field, model
        if key == "method":
            every = method_settings()
            inside = [*every.values()] if method is None else [every[method]]
        for group in inside:
            yield from all_keys(group, method, key)


def _no_such_key(
    key: str, place: list[str], known: list[str], method: str, run: type[BaseModel]
) -> SafeclError:
    if key == "method.pilot" and method == "safe":
        return SafeclError("setting.pilot.earlier")
    if place[0] not in known and place[0] in method_groups():
        return SafeclError(
            "setting.group.not-of-method",
            title=method_settings()[method].title,
            group=place[0],
            key=key,
        )
    if key in keys(run):
        owner = (
            method_settings()[method].title
            if place[0] == "method"
            else f"the {place[0]} that is chosen"
        )
        return SafeclError("setting.not-of-chosen", key=key, owner=owner)
    inside = (
        [name for name in known if name.startswith(f"{place[0]}.")] if len(place) > 1 else known
    )
    ends = difflib.get_close_matches(
        place[-1], [name.rpartition(".")[2] for name in inside], n=1, cutoff=0.7
    )
    named = [name for name in inside if name.rpartition(".")[2] in ends]  # in whatever group
    nearest = unknown("setting", key, named or inside or known)
    if nearest.near or len(inside or known) <= 20:
        return nearest
    return SafeclError("setting.unknown", key=key)
