"""Evaluate a finished run again, with another γ."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from safecl.atomic import write_json
from safecl.engine.checkpoint import load_state
from safecl.engine.device import choose_device, choose_precision
from safecl.engine.device_loader import DeviceLoader
from safecl.engine.folder import read_json
from safecl.engine.identity import FILE, digest
from safecl.errors import SafeclError
from safecl.experiments.launch import build
from safecl.experiments.sweep.plan import Cell
from safecl.methods.catalog import make_method
from safecl.methods.method import Method
from safecl.streams.stream import Stream


class Probe:
    """Evaluates finished runs below ``folder``; ``kept``: where results go; ``cut``: what they had of a stream."""

    def __init__(self, folder: Path, kept: Path, cut: tuple[int, int] | None = None) -> None:
        self.folder, self.kept, self.cut = folder, kept, cut
        self._open: tuple[str, Method, Stream] | None = None

    def __call__(self, cell: Cell, answer: Mapping[str, Any]) -> float | None:
        """The final accuracy of a run with other settings of the answer, such as ``gamma``."""
        run = read_json(self.folder / cell.name / FILE)  # a run that was repeated is evaluated again
        file = self.kept / f"{cell.name}-{digest({'run': run, 'answer': answer})[:8]}.json"
        found = read_json(file)
        if found is None:
            if self._open is None or self._open[0] != cell.name:
                method, stream = restore(self.folder / cell.name, cell)
                self._open = cell.name, method, stream.excerpt(*self.cut) if self.cut else stream
            found = {"accuracy": accuracy(*self._open[1:], answer)}
            self.kept.mkdir(parents=True, exist_ok=True)
            write_json(file, found)
        value: float | None = found["accuracy"]
        return value


@torch.no_grad()
def accuracy(method: Method, stream: Stream, answer: Mapping[str, Any]) -> float | None:
    """On all test pictures; nothing is trained."""
    before = method.settings
    values: dict[str, Any] = before.model_dump()
    values["answer"] |= answer
    method.settings = type(before).model_validate(values)
    try:
        tests = _tests(method, stream)
        right = [method.logits(images).argmax(dim=1).cpu() == targets for images, targets in tests]
    finally:
        method.settings = before
    return torch.cat(right).double().mean().item() if right else None


def _tests(method: Method, stream: Stream) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of the test pictures of all parts, with class indices (n,)."""
    for pictures in filter(len, map(stream.test, range(1, len(stream.test_parts) + 1))):
        targets = torch.tensor([method.classes.index(label) for label in pictures.labels])
        loader = DeviceLoader(pictures, stream.transform, method.backbone.device)
        for images in loader.plain(range(len(pictures))):
            yield images, targets[: len(images)]
            targets = targets[len(images) :]


def restore(folder: Path, cell: Cell) -> tuple[Method, Stream]:
    """The method in the newest state of a run, ready to answer, and its stream from the start."""
    states = sorted((folder / "state").glob("session_*.safetensors"))
    if not states:
        raise SafeclError(f"{folder} holds no state of the run; delete the folder and start again.")
    settings, (backbone, stream, *_) = cell.settings, build(cell.settings)
    device = choose_device(settings.device)
    backbone = backbone.to(device, choose_precision(settings.precision, device))
    method = make_method(settings.method, backbone, settings.seed)
    tensors, facts = load_state(states[-1])
    method.restore(tensors, facts["classes"])
    return method.eval(), stream
