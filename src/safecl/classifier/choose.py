"""Which backbone suits the first pictures: the leave-one-out error of a ridge head on the frozen
features of each that is at hand. Nothing is downloaded.
"""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from safecl.backbone import hub
from safecl.backbone.load import load_backbone
from safecl.backbone.micro import sized
from safecl.backbone.settings import AUTO, EMBEDDED, BackboneSettings, short_form
from safecl.classifier.data import ready
from safecl.classifier.settings import Prefer
from safecl.classifier.teach import embed
from safecl.engine.device import choose_precision
from safecl.engine.progress import Progress
from safecl.errors import SafeclError
from safecl.heads.choose_beta import leave_one_out
from safecl.heads.left_out import MIN_JUDGING_PICTURES, judges
from safecl.heads.random_features import RandomFeatures
from safecl.heads.settings import RidgeSettings
from safecl.lines import counted
from safecl.streams.labels import sorted_classes
from safecl.streams.pictures.images import Pictures, Transform

MAX_ASKED = 256  # pictures
MAX_ERROR_FOR_SPEED = 1.25  # in units of the least error


@dataclass(frozen=True)
class Candidate:
    """A backbone, the mean squared ``error`` on pictures that are left out in turn, and the
    ``seconds`` that 100 pictures take.
    """

    settings: BackboneSettings
    name: str
    size: int
    error: float
    seconds: float

    @property
    def entry(self) -> dict[str, Any]:
        """As the header of a model has it."""
        own = {key: value for key, value in asdict(self).items() if key != "settings"}
        return {**own, "file": self.settings.weights}

    def __str__(self) -> str:
        name = Path(self.settings.weights or self.name).name
        return (
            f"{name} at {self.size} px: leave-one-out error {self.error:.3f},"
            f" {self.seconds:.1f} s per 100 pictures"
        )


def choose(
    word: str,
    prefer: Prefer,
    pictures: Pictures,
    given: Mapping[str, Any],
    device: torch.device,
    progress: Progress,
) -> tuple[BackboneSettings, dict[str, Any]]:
    """The settings of the backbone that suits ``pictures``, and the evidence for a model's header.

    ``word``: auto, or auto:A,B. ``given``: what else is set of the backbone.
    """
    rows, targets = _judging(pictures)
    asked = pictures.subset(rows.tolist())
    found: list[Candidate] = []
    for settings in _candidates(word, given):
        settings, _ = sized(settings, pictures.shorter_side)
        try:
            found.append(_ask(settings, asked, targets, device))
        except SafeclError as error:
            if word != AUTO:
                raise
            progress.say(f"{settings.weights or settings.name} is left out: {error}")
            continue
        progress.say(f"{found[-1]}.")
    chosen = best(found, prefer)
    rule = "of the least error" if prefer == "accuracy" else "the fastest whose error is near it"
    progress.say(f"Chosen of {counted(len(found), 'backbone')}: {chosen.name}, {rule}.")
    others = sorted((one for one in found if one is not chosen), key=lambda one: one.error)
    evidence = {
        "backbone": word,
        "prefer": prefer,
        "pictures": len(rows),
        "candidates": [one.entry for one in (chosen, *others)],
    }
    return chosen.settings, evidence


def _candidates(word: str, given: Mapping[str, Any]) -> list[BackboneSettings]:
    """Those that are named, or the embedded one and what the hub's cache has."""
    names = word.partition(":")[2]
    words = names.split(",") if names else [EMBEDDED, *hub.cached()]
    found = [BackboneSettings.model_validate({**given, **short_form(one)}) for one in words]
    for one in found:
        if one.weights is None and one.name != EMBEDDED and hub.cached_file(one.name) is None:
            raise SafeclError("backbone.auto.not-cached", name=one.name)
    return found


def _judging(pictures: Pictures) -> tuple[Tensor, Tensor]:
    """Positions (n,) of some pictures of every class that has two, and their class indices (n,)."""
    index = {label: i for i, label in enumerate(sorted_classes(pictures.labels))}
    targets = torch.tensor([index[label] for label in pictures.labels])
    rows = judges(targets, MAX_ASKED)
    if len(rows) > MAX_ASKED:  # two of each class are too many: some classes are left out
        kept = torch.unique(targets[rows])[: MAX_ASKED // 2]
        rows = rows[torch.isin(targets[rows], kept)]
    if not len(rows):
        pairs = int((targets.bincount()[targets] > 1).sum())
        raise SafeclError("backbone.auto.few", pictures=pairs, least=MIN_JUDGING_PICTURES)
    return rows, targets[rows]


def _ask(
    settings: BackboneSettings, pictures: Pictures, targets: Tensor, device: torch.device
) -> Candidate:
    backbone = load_backbone(settings).to(device, choose_precision("auto", device))
    transform = Transform(backbone.size)
    seconds = 0.0

    def features(images: Tensor) -> dict[str, Tensor]:
        nonlocal seconds
        if not seconds:
            backbone.features(images[:1]).cpu()  # the first pass takes longer
        began = time.perf_counter()
        read = backbone.features(images).cpu()
        seconds += time.perf_counter() - began
        return {"": read}

    every = range(len(pictures))
    read = embed(features, ready(pictures, transform), every, transform, device)[""]
    ridge = RidgeSettings()
    errors = leave_one_out(ridge, RandomFeatures(read.shape[1], ridge.size), read, targets)
    error = float(errors.mean())
    return Candidate(settings, backbone.name, backbone.size, error, 100 * seconds / len(pictures))


def best(candidates: list[Candidate], prefer: Prefer) -> Candidate:
    """That of the least error; or the fastest of those with at most 1.25 times the least error."""
    least = min(candidates, key=lambda one: one.error)
    if prefer == "accuracy":
        return least
    near = [one for one in candidates if one.error <= MAX_ERROR_FOR_SPEED * least.error]
    return min(near, key=lambda one: one.seconds)
