"""What ``safecl info --keys`` says: every setting with its value, its choices and its meaning."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from safecl.configure.layers import TAGS, method_groups
from safecl.configure.sentences import all_keys
from safecl.errors import unknown
from safecl.experiments.config import RunSettings, load, presets
from safecl.lines import print_sentence, text_for
from safecl.methods.catalog import method_settings
from safecl.pet.settings import PETS
from safecl.settings import flatten
from safecl.streams.settings import FORMS, names

ASIDE = 36  # columns for a key and its value, beside which its meaning stands
NARROW = 70  # columns below which the meaning stands below


@dataclass(frozen=True)
class Key:
    """A setting. ``kinds``: of method, PET or stream that have it, where it is not in all of them."""

    name: str
    value: str
    meaning: str
    group: str
    kinds: tuple[str, ...] = ()

    @property
    def head(self) -> str:
        return f"{self.group}: {', '.join(self.kinds)}" if self.kinds else self.group


def print_keys(source: str | None, console: Console) -> None:
    """All settings with their defaults; or those of one method or preset, with the values that it runs with."""
    for head, keys in groupby(every_key(source), key=lambda key: key.head):
        print_sentence(console, head, "bold")
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(width=ASIDE, overflow="fold")
        grid.add_column(overflow="fold")
        for key in keys:
            if console.width >= NARROW:
                grid.add_row(text_for(console, f"{key.name} = {key.value}"), text_for(console, key.meaning))
            else:
                console.print(text_for(console, f"{key.name} = {key.value}"))
                console.print(Padding(text_for(console, key.meaning), (0, 0, 0, 4)))
        console.print(grid)
        console.print()


def every_key(source: str | None = None) -> list[Key]:
    """Group by group; in a group, what most kinds have comes first."""
    settings = _settings(source)
    active = flatten(settings.model_dump(mode="json")) if source else {}
    found: dict[tuple[str, str, str, str], dict[str, None]] = {}
    for key, field, owner in all_keys(RunSettings, settings.method.name if source else None):
        group, _, name = key.rpartition(".")
        if key == "preset" or key in method_groups() or isinstance(field.default, BaseModel) or TAGS.get(group) == name:
            continue
        full, kinds = f"method.{key}" if group in method_groups() else key, _kinds(owner)
        chosen = active.get(f"{full.rpartition('.')[0]}.{TAGS.get(group)}")
        value = active[full] if full in active and (not kinds or chosen in kinds) else _default(field)
        entry = (group or "run", key, typed(value), _meaning(field))
        found.setdefault(entry, {}).update(dict.fromkeys(kinds))
    keys = [Key(key, value, text, group, tuple(kinds)) for (group, key, value, text), kinds in found.items()]
    groups = list(dict.fromkeys(["method", *(key.group for key in keys)]))
    keys.sort(key=lambda key: (groups.index(key.group), -len(key.kinds), key.kinds))
    return [*_choices(settings, source), *keys]


def _settings(source: str | None) -> RunSettings:
    if source is not None and source not in (*presets(), *method_settings()):
        raise unknown("method or preset", source, {*presets(), *method_settings()})
    return load(source) if source in presets() else load("safe", [f"method={source}"] if source else [])


def _choices(settings: RunSettings, source: str | None) -> Iterator[Key]:
    """The words that choose a whole group."""
    group = f"what safecl run {source or 'safe'} runs"
    yield Key("method", settings.method.name, f"one of {', '.join(method_settings())}", group)
    yield Key("stream", settings.stream.title, f"one of {', '.join((*names(), *FORMS))}", group)
    yield Key("backbone", settings.backbone.name, "a timm ViT by its name, or a file of weights", group)
    if "pet" in type(settings.method).model_fields:
        yield Key("pet", settings.pet, f"one of {', '.join(PETS)}", group)


def _kinds(owner: type[BaseModel]) -> tuple[str, ...]:
    """Which kinds of method, PET or stream a settings class is for."""
    for tag in sorted(set(TAGS.values()) & owner.model_fields.keys()):
        kinds = get_args(owner.model_fields[tag].annotation)
        if kinds:
            return tuple(map(str, kinds))
    return ()


def _meaning(field: FieldInfo) -> str:
    """What it is, and the words that may stand there."""
    parts = (field.annotation, *get_args(field.annotation))
    words = [str(value) for part in parts if get_origin(part) is Literal for value in get_args(part)]
    text = field.description or ""
    told = all(word in text for word in words)
    return text if told else f"{text} ({', '.join(dict.fromkeys(words))})"


def _default(field: FieldInfo) -> Any:
    return "…" if field.is_required() else field.default


def typed(value: Any) -> str:
    """As one writes it in a word or a file."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(f'{one:.4g}' if isinstance(one, float) else typed(one) for one in value)}]"
    return str(value)
