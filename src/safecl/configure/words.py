"""``key=value`` words and dotted keys as nested values."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from safecl.configure.layers import Values, method_groups, short_form
from safecl.errors import SafeclError
from safecl.settings import flatten

# Of groups, which cannot be null.
EXAMPLES = {"method": "safe", "stream": "folder:photos", "backbone": "safecl_micro", "pet": "ssf"}


def parse_words(words: Sequence[str]) -> Values:
    """``key=value`` words as nested values."""
    values: Values = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise SafeclError("setting.word.form", word=word)
        if not text:
            example = EXAMPLES.get(key)
            hint = f"for example {key}={example}" if example else f"write {key}=null for none"
            raise SafeclError("setting.word.no-value", key=key, hint=hint)
        try:
            values[key] = text if re.match(r"^\w+:", text) else yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise SafeclError("setting.word.unreadable", word=word) from error
    return nested(values)


def nested(flat: Mapping[str, Any]) -> Values:
    """Values by dotted keys as nested ones. A whole group may stand before or after what is inside
    it.
    """
    values: Values = {}
    for key, value in sorted(flat.items(), key=lambda item: item[0].count(".")):
        *groups, last = key.split(".")
        inside = values
        for depth, group in enumerate(groups):
            below = short_form(group, inside.get(group, {}))
            if not isinstance(below, Mapping):
                raise SafeclError(
                    "setting.nothing-inside",
                    key=key,
                    value=value,
                    group=".".join(groups[: depth + 1]),
                )
            inside[group] = dict(below)
            inside = inside[group]
        inside[last] = value
    return values


def flat(values: Mapping[str, Any]) -> Values:
    """By dotted keys as a user writes them: groups of a method without ``method.`` in front."""
    found = {(key, key.removeprefix("method.")): value for key, value in flatten(values).items()}
    groups = method_groups()
    return {
        inner if inner.partition(".")[0] in groups else key: value
        for (key, inner), value in found.items()
    }


def typed(value: Any) -> str:
    """As one writes it in a word or a file."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        each = (f"{one:.4g}" if isinstance(one, float) else typed(one) for one in value)
        return f"[{', '.join(each)}]"
    return str(value)
