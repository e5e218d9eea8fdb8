"""What ``safecl info`` says."""

import os
import platform
from pathlib import Path

import timm
import torch

import safecl
from safecl.backbone import PAPER, embedded_weights
from safecl.errors import SafeclError
from safecl.experiments.config import RunSettings, keys, presets
from safecl.methods import METHODS
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
        f"PET         {', '.join(('adapter', 'ssf', 'vpt_deep', 'vpt_shallow', 'lora', 'none'))}",
        f"methods     {', '.join(METHODS)}",
        f"presets     {', '.join(presets())}",
        f"streams     {', '.join(names())}",
        f"            own pictures: {', '.join(FORMS)}",
        f"runs        {Path('runs').resolve()}",
        f"datasets    {data_root(None).resolve()}  (SAFECL_DATA)",
        f"weights     {hub()}  (HF_HOME)",
    ]
    return "\n".join(lines)


def describe_keys() -> str:
    """Every setting with its default."""
    defaults = RunSettings().model_dump()
    lines = []
    for key in keys():
        group, _, inner = key.partition(".")
        value = defaults[group].get(inner, "") if inner and isinstance(defaults[group], dict) else defaults[group]
        if inner or not isinstance(value, dict):
            lines.append(f"{key} = {value}")
    return "\n".join(lines)


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
