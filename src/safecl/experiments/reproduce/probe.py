"""Ask a finished run again: with another γ, or for features."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from safecl.atomic import read_json
from safecl.engine.device import choose_precision, make_accelerator
from safecl.engine.device_loader import DeviceLoader
from safecl.engine.evaluate import evaluate
from safecl.engine.fit import Trainer
from safecl.engine.folder import restore_newest
from safecl.engine.identity import FILE, Identity
from safecl.engine.progress import Progress
from safecl.errors import SafeclError
from safecl.experiments.config import RunSettings
from safecl.experiments.launch import build
from safecl.experiments.sweep.plan import Cell
from safecl.methods.catalog import make_method
from safecl.streams.pictures.images import Pictures, join
from safecl.streams.stream import positions

MAPPED_CLASSES = 5
MAPPED_EACH = 20  # seen ones and unseen ones, and test pictures of each


class Probe:
    """Evaluates finished runs below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: tuple[str, Trainer, Sequence[Pictures]] | None = None

    def __call__(self, cell: Cell, answer: Mapping[str, Any]) -> float | None:
        """The accuracy of a run on all test pictures with other settings of the answer, such as
        ``gamma``.
        """
        fit, tests = self._restored(cell)
        before = fit.method.settings
        values = fit.method.settings.model_dump()
        values["answer"] |= answer
        fit.method.settings = type(before).model_validate(values)
        try:
            answers = evaluate(fit.method, tests, fit, "evaluation")
        finally:
            fit.method.settings = before
        right = answers.main == answers.targets
        return right.double().mean().item() if len(right) else None

    @torch.no_grad()
    def features(self, cell: Cell, network: str) -> tuple[list[str], NDArray[np.float32]]:
        """Labels (n) of some test pictures and their features (n, d): of a ``network`` of a run, or
        the backbone's.

        They are of some classes of the first session, and of as many of later ones.
        """
        fit, tests = self._restored(cell)
        every = join(tests)
        first = set(tests[0].labels)
        method = fit.method
        where = positions(every.labels)
        early, later = (
            [label for label in where if (label in first) is wanted] for wanted in (True, False)
        )
        chosen = [
            i
            for label in early[:MAPPED_CLASSES] + later[:MAPPED_CLASSES]
            for i in where[label][:MAPPED_EACH]
        ]
        if not chosen:
            raise SafeclError("reproduce.probe.no-test")
        found = []
        for images in DeviceLoader(every, fit.transform, method.backbone.device).plain(chosen):
            asked = method.backbone if network == "backbone" else method.networks[network]
            found.append(asked.features(images)[:, : method.backbone.width].float().cpu())
        return [str(every.labels[i]) for i in chosen], torch.cat(found).numpy()

    def _restored(self, cell: Cell) -> tuple[Trainer, Sequence[Pictures]]:
        if self._open is None or self._open[0] != cell.name:
            run = read_json(self.folder / cell.name / FILE) or {}
            self._open = cell.name, *restore(self.folder / cell.name, cell.settings, run)
        return self._open[1:]


def restore(folder: Path, settings: RunSettings, run: Identity) -> tuple[Trainer, list[Pictures]]:
    """The method in the newest state of a ``run``, ready to answer, and the test pictures of all
    parts.
    """
    accelerator, (backbone, stream, *_) = make_accelerator(settings.device), build(settings)
    backbone = backbone.to(
        accelerator.device, choose_precision(settings.precision, accelerator.device)
    )
    method = make_method(settings.method, backbone, settings.seed)
    progress = Progress()
    if not restore_newest(folder, run, method, progress.say)[0]:
        raise SafeclError("reproduce.probe.no-state", folder=folder)
    fit = Trainer(accelerator, method, settings.train, stream.transform, settings.seed, progress)
    return fit, [stream.test(part) for part in range(1, len(stream.test_parts) + 1)]
