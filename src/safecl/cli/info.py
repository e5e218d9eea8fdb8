"""What ``safecl info`` says."""

import os
import platform
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import timm
import torch
from pydantic import BaseModel

import safecl
from safecl.backbone.load import embedded_weights
from safecl.backbone.settings import PAPER
from safecl.errors import SafeclError
from safecl.experiments.config import RunSettings, presets
from safecl.experiments.layers import TAGS
from safecl.experiments.sentences import all_keys
from safecl.methods.catalog import method_settings
from safecl.pet.settings import PETS
from safecl.streams.catalog import data_root
from safecl.streams.settings import FORMS, names


def describe() -> str:
    """Version, devices, backbones and weights, streams, methods, folders: a line or two each."""
    lines = [
        f"safecl {safecl.__version__}  (Python {platform.python_version()}, torch {torch.__version__}, "
        f"timm {timm.__version__})",
        f"devices     {', '.join(devices())}",
        f"backbones   {embedded()}",
        f"            any timm ViT with a CLS token; the paper's: {', '.join(PAPER.values())}",
        f"            downloaded weights: {', '.join(downloaded()) or 'none yet'}",
        f"PET         {', '.join(PETS)}",
        f"methods     {', '.join(method_settings())}",
        f"presets     {', '.join(presets())}",
        f"streams     {', '.join(names())}",
        f"            own pictures: {', '.join(FORMS)}",
        f"runs        {Path('runs').resolve()}",
        f"datasets    {data_root(None).resolve()}  (SAFECL_DATA)",
        f"weights     {hub()}  (HF_HOME)",
    ]
    return "\n".join(lines)


def describe_keys(method: str | None = None) -> str:
    """Every setting with its choices, default and meaning; of one method or of all, and of every kind of a group."""
    lines: dict[str, list[str]] = {}
    for key, field, owner in all_keys(RunSettings, method):
        if key in ("preset", *TAGS) or isinstance(field.default, BaseModel):
            continue
        value = "required" if field.is_required() else _value(field.default)
        kind = _kind(owner)
        line = f"{key} = {value}{f'  [{kind}]' if kind else ''}  {_choices(field.annotation)}{field.description or ''}"
        lines.setdefault(key.partition(".")[0], []).append(line.rstrip())
    return "\n\n".join("\n".join(dict.fromkeys(group)) for group in lines.values())


def _value(default: Any) -> str:
    return "null" if default is None else str(default).lower() if isinstance(default, bool) else str(default)


def _kind(owner: type[BaseModel]) -> str:
    """Which kind of method, PET or stream a settings class is for."""
    for tag in set(TAGS.values()) & owner.model_fields.keys():
        kinds = get_args(owner.model_fields[tag].annotation)
        if kinds:
            return ", ".join(map(str, kinds))
    return ""


def _choices(annotation: Any) -> str:
    """The words that may stand there, in brackets."""
    words = [
        value for part in (annotation, *get_args(annotation)) if get_origin(part) is Literal for value in get_args(part)
    ]
    return f"({' | '.join(dict.fromkeys(map(str, words)))}) " if words else ""


def devices() -> list[str]:
    found = [f"cpu ({os.cpu_count()} cores)"]
    found += [f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count())]
    return [*found, "mps"] if torch.backends.mps.is_available() else found


def embedded() -> str:
    try:
        return f"safecl_micro (embedded, {embedded_weights().stat().st_size / 1e6:.1f} MB)"
    except SafeclError as error:
        return f"safecl_micro: {error}"


def hub() -> Path:
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE)


def downloaded() -> list[str]:
    """timm weights in the hub's cache."""
    return sorted(folder.name.removeprefix("models--timm--") for folder in hub().glob("models--timm--*"))
