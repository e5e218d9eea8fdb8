"""From settings to a finished run: the one function behind ``safecl run``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from safecl.backbone.load import load_backbone
from safecl.engine.device import choose_precision, make_accelerator
from safecl.engine.progress import Progress
from safecl.engine.run import run
from safecl.experiments.config import RunSettings
from safecl.methods.catalog import make_method
from safecl.settings import flatten
from safecl.streams.catalog import open_stream
from safecl.streams.stream import Stream


def launch(
    settings: RunSettings,
    folder: Path,
    progress: Progress | None = None,
    *,
    facts: Mapping[str, Any] | None = None,
    given: str = "",
    trackers: Sequence[str] = (),
    fresh: bool = False,
    stream: Stream | None = None,
) -> dict[str, Any]:
    """Build what ``settings`` name and run it in ``folder``; gives the summary.

    ``given``: the configuration as the user wrote it, kept beside what became of it. ``trackers``: of experiments, to
    which the numbers go as well. ``fresh``: forget the run that the folder holds. ``stream``: in place of the one that
    the settings name.
    """
    accelerator = make_accelerator(settings.device, trackers, folder)
    precision = choose_precision(settings.precision, accelerator.device)
    backbone = load_backbone(settings.backbone).to(accelerator.device, precision)
    stream = stream or open_stream(settings.stream, size=backbone.size, seed=settings.seed)
    method = make_method(settings.method, backbone, settings.seed)
    resolved = settings.model_dump(mode="json")
    # Only now is the folder touched: settings that name nothing leave none behind.
    documents = {"resolved.yaml": yaml.safe_dump(resolved, sort_keys=False, allow_unicode=True)}
    named = {"preset": settings.preset, "pet": settings.pet, "precision": str(backbone.dtype).removeprefix("torch.")}
    if trackers:
        flat = {
            key: value if isinstance(value, str | int | float) else str(value)
            for key, value in flatten(resolved).items()
        }
        accelerator.init_trackers("safecl", {"folder": folder.name, **flat})
    try:
        return run(
            method,
            stream,
            folder,
            accelerator=accelerator,
            train=settings.train,
            seed=settings.seed,
            progress=progress,
            settings=resolved,
            facts={**(facts or {}), **named},
            documents={"given.yaml": given, **documents} if given else documents,
            fresh=fresh,
        )
    finally:
        for each in accelerator.trackers:
            each.finish()
