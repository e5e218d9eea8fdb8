"""Evaluate a finished run again: its features, its answers with another γ."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
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
from safecl.streams.pictures.images import Pictures
from safecl.streams.stream import Stream, positions

TSNE_CLASSES = 5  # of the first session, and of the later ones
MAX_TSNE_PICTURES = 40  # per class


class Probe:
    """Evaluates finished runs below ``folder``; ``kept``: where results go; ``cut``: what they had of a stream."""

    def __init__(self, folder: Path, kept: Path, cut: tuple[int, int] | None = None) -> None:
        self.folder, self.kept, self.cut = folder, kept, cut
        self._open: tuple[str, Method, Stream] | None = None

    def ask(self, cell: Cell, question: Callable[..., dict[str, Any]], *details: Any) -> dict[str, Any]:
        """The answer of a finished run, as it was after the last session, to one of the questions below; kept."""
        run = read_json(self.folder / cell.name / FILE)  # a run that was repeated is evaluated again
        file = self.kept / f"{cell.name}-{digest({'run': run, 'question': [question.__name__, *details]})[:8]}.json"
        found = read_json(file)
        if found is None:
            if self._open is None or self._open[0] != cell.name:
                method, stream = restore(self.folder / cell.name, cell)
                self._open = cell.name, method, stream.excerpt(*self.cut) if self.cut else stream
            with torch.no_grad():
                found = question(*self._open[1:], *details)
            self.kept.mkdir(parents=True, exist_ok=True)
            write_json(file, found)
        return found


def accuracy(method: Method, stream: Stream, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Final accuracy with other settings of the answer, such as ``gamma``; nothing is trained."""
    before = method.settings
    values: dict[str, Any] = before.model_dump()
    values["answer"] |= answer
    method.settings = type(before).model_validate(values)
    try:
        tests = _tests(method, stream)
        right = [method.logits(images).argmax(dim=1).cpu() == targets for images, targets in tests]
    finally:
        method.settings = before
    return {"accuracy": torch.cat(right).double().mean().item() if right else None}


def features(method: Method, stream: Stream, network: str) -> dict[str, Any]:
    """Of pictures of a few seen and unseen classes; ``network``: backbone, or a key of the method's features."""
    (_, known), *others = stream.sessions
    turns = chain.from_iterable(zip_longest(*(classes for _, classes in others)))  # of each later session in turn
    first, later = known[:TSNE_CLASSES], [one for one in dict.fromkeys(turns) if one not in (None, *known)]
    rows, labels, later = [], [], later[:TSNE_CLASSES]
    for pictures in _parts(stream):
        where = positions(pictures.labels)
        places = [i for label in (*first, *later) for i in where.get(label, [])[:MAX_TSNE_PICTURES]]
        for images in _batches(method, stream, pictures, places):
            found = method.backbone.features(images) if network == "backbone" else method.embed(images)[network]
            rows += found.float().cpu().tolist()
        labels += [str(pictures.labels[i]) for i in places]
    return {"features": rows, "labels": labels, "seen": [*map(str, first)], "unseen": [*map(str, later)]}


def _parts(stream: Stream) -> Iterator[Pictures]:
    return map(stream.test, range(1, len(stream.test_parts) + 1))


def _batches(method: Method, stream: Stream, pictures: Pictures, places: Sequence[int]) -> Iterator[Tensor]:
    if len(places):
        yield from DeviceLoader(pictures, stream.transform, method.backbone.device).plain(places)


def _tests(method: Method, stream: Stream) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of the test pictures of all parts, with class indices (n,)."""
    for pictures in _parts(stream):
        targets = torch.tensor([method.classes.index(label) for label in pictures.labels])
        for images in _batches(method, stream, pictures, range(len(pictures))):
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
