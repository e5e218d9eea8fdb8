"""What ``safecl info`` says. Nothing heavy is imported: it answers at once."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import safecl
from safecl.backbone.settings import EMBEDDED, PAPER, embedded_weights
from safecl.errors import SafeclError
from safecl.experiments.config import presets
from safecl.lines import counted
from safecl.methods.catalog import method_settings
from safecl.pet.settings import PETS
from safecl.streams.settings import FORMS, data_root, names


def describe() -> list[tuple[str, str]]:
    """Version, devices, backbones and weights, streams, methods, folders."""
    return [
        ("safecl", f"{safecl.__version__} on Python {platform.python_version()}, torch {version('torch')}, "
                   f"timm {version('timm')}"),
        ("devices", ", ".join(devices())),
        ("backbones", embedded()),
        ("", "any timm ViT with a CLS token; the paper's:"),
        *(("", f"{name}: {model}") for name, model in PAPER.items()),
        ("", f"downloaded: {', '.join(downloaded()) or 'none yet'}"),
        ("PET", ", ".join(PETS)),
        ("methods", ", ".join(method_settings())),
        ("presets", ", ".join(presets())),
        ("streams", ", ".join(names())),
        ("", f"your own pictures: {', '.join(FORMS)}"),
        ("settings", "safecl info --keys lists them all, safecl info --keys safe those of one method or preset"),
        ("runs", str(Path("runs").resolve())),
        ("datasets", f"{data_root().resolve()}  (SAFECL_DATA)"),
        ("weights", f"{hub()}  (HF_HOME)"),
    ]  # fmt: skip


def devices() -> list[str]:
    """The processors that torch could compute on, found without it."""
    found = [f"cpu ({counted(os.cpu_count() or 1, 'core')})"]
    if platform.system() == "Darwin" and platform.machine() == "arm64":
        found.append("mps")
    cards = graphics_cards()
    without = " (this torch is built without CUDA)" if version("torch").endswith("+cpu") else ""
    return found + [f"cuda:{i} ({name}){without}" for i, name in enumerate(cards)]


def graphics_cards(root: Path = Path("/proc/driver/nvidia/gpus")) -> list[str]:
    """The names of NVIDIA's cards, from the driver's own program or from what it says in ``root``."""
    try:
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        said = subprocess.run(query, capture_output=True, text=True, timeout=5, check=True).stdout
        return [line.strip() for line in said.splitlines() if line.strip()]
    except (OSError, subprocess.SubprocessError):
        files = sorted(root.glob("*/information"))
        lines = [line for file in files for line in file.read_text(encoding="utf-8", errors="replace").splitlines()]
        return [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]


def embedded() -> str:
    try:
        return f"{EMBEDDED} (embedded, {embedded_weights().stat().st_size / 1e6:.1f} MB)"
    except SafeclError as error:
        return f"{EMBEDDED}: {error}"


def hub() -> Path:
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE)


def downloaded() -> list[str]:
    """timm weights in the hub's cache."""
    return sorted(folder.name.removeprefix("models--timm--") for folder in hub().glob("models--timm--*"))
