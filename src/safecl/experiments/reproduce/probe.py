"""Evaluate a finished run again, with another γ."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safecl.atomic import write_json
from safecl.engine.device import choose_precision, make_accelerator
from safecl.engine.evaluate import evaluate
from safecl.engine.fit import Trainer
from safecl.engine.folder import read_json, restore_newest
from safecl.engine.identity import FILE, Identity, digest
from safecl.engine.progress import Progress
from safecl.errors import SafeclError
from safecl.experiments.config import RunSettings
from safecl.experiments.launch import build
from safecl.experiments.sweep.plan import Cell
from safecl.methods.catalog import make_method
from safecl.streams.pictures.images import Pictures


class Probe:
    """Evaluates finished runs below ``folder``; ``kept``: where results go."""

    def __init__(self, folder: Path, kept: Path) -> None:
        self.folder, self.kept = folder, kept
        self._open: tuple[str, Trainer, Sequence[Pictures]] | None = None

    def __call__(self, cell: Cell, answer: Mapping[str, Any]) -> float | None:
        """The final accuracy of a run with other settings of the answer, such as ``gamma``."""
        run = read_json(self.folder / cell.name / FILE) or {}  # a run that was repeated is evaluated again
        file = self.kept / f"{cell.name}-{digest({'run': run, 'answer': answer})[:8]}.json"
        found = read_json(file)
        if found is None:
            if self._open is None or self._open[0] != cell.name:
                self._open = cell.name, *restore(self.folder / cell.name, cell.settings, run)
            found = {"accuracy": accuracy(*self._open[1:], answer)}
            self.kept.mkdir(parents=True, exist_ok=True)
            write_json(file, found)
        value: float | None = found["accuracy"]
        return value


def accuracy(fit: Trainer, tests: Sequence[Pictures], answer: Mapping[str, Any]) -> float | None:
    """On all test pictures; nothing is trained."""
    method, before = fit.method, fit.method.settings
    values: dict[str, Any] = before.model_dump()
    values["answer"] |= answer
    method.settings = type(before).model_validate(values)
    try:
        found = evaluate(method, tests, fit, "evaluation")
    finally:
        method.settings = before
    return (found.main == found.targets).double().mean().item() if len(found.targets) else None


def restore(folder: Path, settings: RunSettings, run: Identity) -> tuple[Trainer, list[Pictures]]:
    """The method in the newest state of a ``run``, ready to answer, and the test pictures of all parts."""
    accelerator, (backbone, stream, *_) = make_accelerator(settings.device), build(settings)
    backbone = backbone.to(accelerator.device, choose_precision(settings.precision, accelerator.device))
    method, progress = make_method(settings.method, backbone, settings.seed), Progress()
    if not restore_newest(folder, run, method, progress.say)[0]:
        raise SafeclError(f"{folder} holds no state of the run; delete the folder and start again.")
    fit = Trainer(accelerator, method, settings.train, stream.transform, settings.seed, progress)
    return fit, [stream.test(part) for part in range(1, len(stream.test_parts) + 1)]
