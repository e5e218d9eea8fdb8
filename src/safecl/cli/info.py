"""What ``safecl info`` and ``safecl methods`` say. No torch is imported: they answer at once."""

import contextlib
import os
import platform
import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

from huggingface_hub.constants import HF_HUB_CACHE
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from rich.console import Console

import safecl
from safecl.backbone.settings import EMBEDDED, PAPER, embedded_weights
from safecl.cli.terminal import print_facts
from safecl.configure.layers import TAGS, method_groups
from safecl.configure.sentences import all_keys
from safecl.configure.words import typed
from safecl.engine.metrics import METRICS
from safecl.entry_points import Catalog
from safecl.errors import unknown
from safecl.experiments.config import RunSettings, load, presets
from safecl.lines import counted
from safecl.methods.catalog import method_settings
from safecl.pet.settings import PETS
from safecl.report.table import make_table, print_table
from safecl.settings import flatten
from safecl.streams.settings import FORMS, data_root, names


def describe() -> list[tuple[str, str]]:
    """Version, devices, backbones and weights, streams, methods, folders."""
    hub = Path(HF_HUB_CACHE)
    size = embedded_weights().stat().st_size / 1e6
    downloaded = sorted(
        folder.name.removeprefix("models--timm--") for folder in hub.glob("models--timm--*")
    )
    return [
        (
            "safecl",
            (
                f"{safecl.__version__} on Python {platform.python_version()}, torch"
                f" {version('torch')}, timm {version('timm')}"
            ),
        ),
        ("devices", ", ".join(devices())),
        ("backbones", f"{EMBEDDED} (embedded, {size:.1f} MB)"),
        ("", "safecl backbones lists others; the paper's:"),
        *(("", f"{name}: {model}") for name, model in PAPER.items()),
        ("", f"downloaded: {', '.join(downloaded) or 'none yet'}"),
        ("PET", ", ".join(PETS)),
        ("methods", ", ".join(method_settings())),
        ("presets", ", ".join(presets())),
        ("metrics", ", ".join(METRICS)),
        ("streams", ", ".join(names())),
        ("", f"your own pictures: {', '.join(FORMS)}"),
        (
            "settings",
            (
                "safecl info --keys lists them all, safecl info --keys safe those of one method or"
                " preset"
            ),
        ),
        ("runs", str(Path("runs").resolve())),
        ("datasets", f"{data_root().resolve()}  (SAFECL_DATA)"),
        ("weights", f"{hub}  (HF_HOME)"),
    ]


def devices() -> list[str]:
    """The processors that torch could compute on, found without it."""
    found = [f"cpu ({counted(os.cpu_count() or 1, 'core')})"]
    if platform.system() == "Darwin" and platform.machine() == "arm64":
        found.append("mps")
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    without = " (this torch is built without CUDA)" if version("torch").endswith("+cpu") else ""
    with contextlib.suppress(OSError, subprocess.SubprocessError):  # there is no such driver
        said = subprocess.run(query, capture_output=True, text=True, timeout=5, check=True).stdout
        found += [f"cuda:{i} ({name.strip()}){without}" for i, name in enumerate(said.splitlines())]
    return found


def print_methods(console: Console) -> None:
    """A line for each method."""
    heads = ("method", "kind", "kept between sessions")
    catalog = method_settings()
    every = catalog.items()
    rows = [[name, kind.kind, kind.keeps] for name, kind in every]
    print_table(console, make_table("Methods", heads, rows, words=heads[1:]), drop=["kind"])
    console.print()
    print_facts(
        console,
        [
            (name, f"{kind.title}. {kind.paper[0].upper()}{kind.paper[1:]}.{_from(catalog, name)}")
            for name, kind in every
        ],
    )


def _from(catalog: Catalog[Any], name: str) -> str:
    package = catalog.package(name)
    return f" From {package}." if package else ""


class Key(NamedTuple):
    """A setting. ``kinds``: of method, PET or stream that have it, where it is not in all of
    them.
    """

    name: str
    value: str
    meaning: str
    group: str
    kinds: tuple[str, ...] = ()

    @property
    def head(self) -> str:
        return f"{self.group}: {', '.join(self.kinds)}" if self.kinds else self.group


def print_keys(source: str | None, console: Console) -> None:
    """All settings with their defaults; or those of one method or preset, with the values that it
    runs with.
    """
    heads = ("setting", "value", "meaning")
    for head, keys in groupby(every_key(source), key=lambda key: key.head):
        rows = [(key.name, key.value, key.meaning) for key in keys]
        print_table(console, make_table(head, heads, rows, words=heads))


def every_key(source: str | None = None) -> list[Key]:
    """Group by group; in a group, what most kinds have comes first."""
    if source is not None and source not in (*presets(), *method_settings()):
        raise unknown("method or preset", source, {*presets(), *method_settings()})
    settings = (
        load(source)
        if source in presets()
        else load("safe", [f"method={source}"] if source else [])
    )
    active = flatten(settings.model_dump(mode="json")) if source else {}
    found: dict[tuple[str, str, str, str], dict[str, None]] = {}
    for key, field, owner in all_keys(RunSettings, settings.method.name if source else None):
        group, _, name = key.rpartition(".")
        if (
            key == "preset"
            or key in method_groups()
            or isinstance(field.default, BaseModel)
            or TAGS.get(group) == name
        ):
            continue
        full = f"method.{key}" if group in method_groups() else key
        kinds = _kinds(owner)
        chosen = active.get(f"{full.rpartition('.')[0]}.{TAGS.get(group)}")
        default = "…" if field.is_required() else field.default
        value = active[full] if full in active and (not kinds or chosen in kinds) else default
        entry = (group or "run", key, typed(value), _meaning(field))
        found.setdefault(entry, {}).update(dict.fromkeys(kinds))
    keys = [
        Key(key, value, text, group, tuple(kinds))
        for (group, key, value, text), kinds in found.items()
    ]
    groups = list(dict.fromkeys(["method", *(key.group for key in keys)]))
    keys.sort(key=lambda key: (groups.index(key.group), -len(key.kinds), key.kinds))
    return [*_choices(settings, source), *keys]


def _choices(settings: RunSettings, source: str | None) -> Iterator[Key]:
    """The words that choose a whole group."""
    group = f"what safecl run {source or 'safe'} runs"
    yield Key("method", settings.method.name, f"one of {', '.join(method_settings())}", group)
    yield Key("stream", settings.stream.title, f"one of {', '.join((*names(), *FORMS))}", group)
    yield Key(
        "backbone",
        settings.backbone.name,
        "a name of safecl backbones, or a file of weights",
        group,
    )
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
    words = [
        str(value) for part in parts if get_origin(part) is Literal for value in get_args(part)
    ]
    text = field.description or ""
    told = all(word in text for word in words)
    return text if told else f"{text} ({', '.join(dict.fromkeys(words))})"
