"""How long 100 pictures take on this machine, measured once and kept in the user's cache folder.
Without torch until something is measured.
"""

import os
import platform
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import safecl
from safecl.atomic import read_json, write_json
from safecl.errors import SafeclError

if TYPE_CHECKING:
    from safecl.backbone.backbone import Backbone

BATCH = 8
MIN_SECONDS = 1.0  # that a measurement takes


class Timing(NamedTuple):
    """Seconds per 100 pictures of a ``side``, in pixels, on a ``device``."""

    seconds: float
    side: int
    device: str


def measure(backbone: "Backbone", least: float = MIN_SECONDS) -> Timing:
    """By noise, for so many seconds at ``least``; what the weights are makes no difference."""
    import torch

    images = torch.rand(BATCH, 3, backbone.size, backbone.size, device=backbone.device)
    with torch.no_grad():
        backbone.features(images).cpu()  # the first pass takes longer
        passes = 0
        began = time.perf_counter()
        while (took := time.perf_counter() - began) < least or not passes:
            # Others each time: features of the same tensor would be known already.
            backbone.features(images.clone()).cpu()
            passes += 1
    return Timing(100 * took / (passes * BATCH), backbone.size, backbone.device.type)


def known(name: str, side: int, folder: Path | None = None) -> Timing | None:
    """What was measured of a backbone on this machine with these versions.

    ``folder``: where it is kept; the user's cache folder, if not given.
    """
    entry = (read_json(_file(folder)) or {}).get(_here(), {}).get(f"{name} at {side}")
    return entry and Timing(entry["seconds"], side, entry["device"])


def remember(name: str, timing: Timing, folder: Path | None = None) -> None:
    """Keep a measurement; where that cannot be, it is made again."""
    file = _file(folder)
    every = read_json(file) or {}
    entry = {"seconds": timing.seconds, "device": timing.device}
    own = {**every.get(_here(), {}), f"{name} at {timing.side}": entry}
    with suppress(OSError, SafeclError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, {**every, _here(): own})


def _file(folder: Path | None) -> Path:
    if folder is None:
        cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        folder = Path(cache).expanduser() / "safecl"
    return folder / "backbones.json"


def _here() -> str:
    """The machine and the versions that decide how long it takes."""
    versions = (f"{name} {version(name)}" for name in ("torch", "timm"))
    cores = f"{os.cpu_count()} cores"
    machine = (platform.node(), platform.machine(), cores, f"safecl {safecl.__version__}")
    return ", ".join((*machine, *versions))
