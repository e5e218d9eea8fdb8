"""From settings to a finished run: the one function behind ``safecl run``."""

import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from accelerate import Accelerator
from accelerate.utils import is_mlflow_available, is_tensorboard_available, is_wandb_available

from safecl.backbone import load_backbone
from safecl.engine.checkpoint import write_bytes
from safecl.engine.processes import Processes
from safecl.engine.progress import Progress
from safecl.engine.run import run
from safecl.errors import SafeclError, unknown
from safecl.experiments.config import RunSettings, load
from safecl.methods import make_method
from safecl.streams.catalog import open_stream

# What a run leaves in its folder; the state goes first and the settings last, so that half of it is still a run.
WRITTEN = ("state", "metrics.jsonl", "losses.jsonl", "summary.json", "facts.json", "examples.json", "examples",
           "report.html", "trackers", "lock", "given.yaml", "resolved.yaml")  # fmt: skip
TRACKERS = {"tensorboard": is_tensorboard_available, "wandb": is_wandb_available, "mlflow": is_mlflow_available}


def launch(
    settings: RunSettings,
    folder: Path,
    progress: Progress,
    facts: dict[str, Any] | None = None,
    given: str = "",
    trackers: Sequence[str] = (),
) -> dict[str, Any]:
    """Build what ``settings`` name and run it in ``folder``; gives the summary.

    ``given``: the configuration as the user wrote it, kept beside what became of it. ``trackers``: of experiments, to
    which the numbers go as well.
    """
    accelerator = make_accelerator(settings.device, trackers, folder)
    precision = choose_precision(settings.precision, accelerator.device)
    backbone = load_backbone(settings.backbone).to(accelerator.device, precision)
    stream = open_stream(settings.stream.name, size=backbone.size, seed=settings.seed, **settings.stream.options())
    method = make_method(settings.method, backbone, settings.pet, settings.ridge, settings.seed)
    # Only now: settings that name nothing leave no folder behind.
    Processes(accelerator).once(lambda: check_folder(settings, folder, given))
    details = {**(facts or {}), "pet": settings.pet.kind, "precision": str(backbone.dtype).removeprefix("torch.")}
    if trackers:
        accelerator.init_trackers("safecl", {"folder": folder.name, **_scalars(settings.model_dump(mode="json"))})
    try:
        return run(
            accelerator, method, stream, settings.train, stream.transform, settings.seed, folder, progress, details
        )
    finally:
        for each in accelerator.trackers:
            each.finish()


def default_folder(settings: RunSettings, root: Path = Path("runs")) -> Path:
    """A folder of its own for every configuration, so that the same command goes on where it was."""
    # Only what is not a default: a setting that a later version adds leaves the folders of older runs where they are.
    text = yaml.safe_dump(settings.model_dump(mode="json", exclude_defaults=True))
    stream = re.sub(r"\W+", "-", Path(settings.stream.name.split(":")[-1]).name).strip("-").lower()
    digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
    return root / f"{settings.method.name}-{stream}-{settings.pet.kind}-seed{settings.seed}-{digest}"


def start_anew(folder: Path) -> None:
    """Forget the run in ``folder``; files that a run does not write are left alone."""
    if folder.is_dir() and not (folder / "resolved.yaml").is_file() and any(folder.iterdir()):
        raise SafeclError(f"{folder} holds something that is no run, so it is not emptied; choose another folder.")
    for name in WRITTEN:
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)
        else:
            (folder / name).unlink(missing_ok=True)


def check_folder(settings: RunSettings, folder: Path, given: str = "") -> None:
    """Write the settings into the folder, as given and as resolved, or refuse one that holds a run with others."""
    text = yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    file = folder / "resolved.yaml"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if file.exists():
            if load(str(file), []) != settings:
                raise SafeclError(f"{folder} holds a run with other settings; choose another folder with --folder.")
            return
    except OSError as error:
        raise SafeclError(f"The run folder {folder} cannot be used ({error.strerror}).") from error
    if given:
        write_bytes(folder / "given.yaml", given.encode())
    write_bytes(file, text.encode())


def make_accelerator(device: str, trackers: Sequence[str] = (), folder: Path | None = None) -> Accelerator:
    """Accelerate's view of the machine: ``auto`` takes the best device there is."""
    for name in trackers:
        if name not in TRACKERS:
            raise unknown("tracker", name, TRACKERS)
        if not TRACKERS[name]():
            raise SafeclError(f"The tracker {name} is not installed; install it with: pip install {name}.")
    if device not in ("auto", "cpu", "cuda", "mps"):
        raise SafeclError(f"device={device} is not known; choose auto, cpu, cuda or mps.")
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(device, True):
        raise SafeclError(f"device={device} is not available on this machine; choose device=cpu or device=auto.")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    logs = None if folder is None or not trackers else folder / "trackers"
    return Accelerator(cpu=device == "cpu", log_with=list(trackers) or None, project_dir=logs)


def choose_precision(precision: str, device: torch.device) -> torch.dtype:
    """``auto``: bf16 where the hardware has it."""
    if precision == "fp32":
        return torch.float32
    if precision == "bf16":
        return torch.bfloat16
    has = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if has else torch.float32


def _scalars(values: dict[str, Any], prefix: str = "") -> dict[str, str | int | float | bool]:
    """Settings under dotted names, as trackers want them."""
    flat: dict[str, str | int | float | bool] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= _scalars(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value if isinstance(value, str | int | float | bool) else str(value)
    return flat
