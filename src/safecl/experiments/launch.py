"""From settings to a finished run: the one function behind ``safecl run``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from safecl.backbone import micro
from safecl.backbone.load import load_backbone
from safecl.backbone.settings import EMBEDDED
from safecl.engine.device import choose_precision, make_accelerator
from safecl.engine.progress import Progress, Quiet
from safecl.engine.run import run
from safecl.experiments.config import RunSettings
from safecl.methods.catalog import make_method
from safecl.settings import flatten
from safecl.streams.catalog import open_stream, read
from safecl.streams.collection import Collection
from safecl.streams.settings import GlyphsSettings
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
    progress = progress or Quiet()
    accelerator = make_accelerator(settings.device, trackers, folder)
    precision = choose_precision(settings.precision, accelerator.device)
    if stream is None and not isinstance(settings.stream, GlyphsSettings):
        data = read(settings.stream)
        settings = with_image_size(settings, data, progress)
    else:
        data = None
    backbone = load_backbone(settings.backbone).to(accelerator.device, precision)
    stream = stream or open_stream(settings.stream, size=backbone.size, seed=settings.seed, data=data)
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


def with_image_size(settings: RunSettings, data: Collection, progress: Progress) -> RunSettings:
    """The settings with the input size of the embedded backbone, chosen by the size of the pictures if not given."""
    chosen = settings.backbone
    if chosen.name != EMBEDDED or chosen.weights is not None or chosen.image_size is not None:
        return settings
    shorter = data.train.shorter_side
    size = micro.default_size(shorter)
    other = f"backbone.image_size={micro.SIZE} takes a quarter of the time"
    if size == micro.SIZE:
        other = f"try backbone.image_size={micro.PHOTOGRAPH_SIZE} for more detail"
    progress.say(
        f"{EMBEDDED} reads the pictures at {size} × {size} pixels (half of them have {shorter} or more); {other}."
    )
    return settings.model_copy(update={"backbone": chosen.model_copy(update={"image_size": size})})
