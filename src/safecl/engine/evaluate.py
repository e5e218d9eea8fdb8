"""What each output of a method answers to test pictures, and how many of the answers are right."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from safecl.atomic import write_lines
from safecl.engine.device_loader import DeviceLoader
from safecl.engine.fit import Trainer
from safecl.engine.metrics import Accuracy
from safecl.methods.method import Method, all_logits
from safecl.streams.pictures.images import Label, Pictures


@dataclass(frozen=True)
class Answers:
    """The answers to several collections of pictures, one after the other, n pictures in all.

    ``targets`` and ``predicted`` (by output), (n,): positions in ``classes``; a target of −1 is a
    class that the method does not know; the last output is the method's own answer. ``weights`` (by
    output), (n,): how each counts in it. ``confidence`` (by output), (n,): the largest softmax of
    its logits.
    """

    collections: Sequence[Pictures]
    classes: Sequence[Label]
    targets: Tensor
    predicted: dict[str, Tensor]
    weights: dict[str, Tensor] = field(default_factory=dict)
    confidence: dict[str, Tensor] = field(default_factory=dict)

    @property
    def counts(self) -> list[int]:
        return [len(pictures) for pictures in self.collections]

    @property
    def main(self) -> Tensor:
        """The method's own answers, (n,)."""
        return list(self.predicted.values())[-1]

    def accuracy(self) -> dict[str, list[Accuracy]]:
        """By output, one number per collection; ``None`` for one without pictures."""
        found: dict[str, list[Accuracy]] = {}
        for output, predicted in self.predicted.items():
            parts = torch.split(predicted == self.targets, self.counts)
            found[output] = [
                int(right.sum()) / len(right) if len(right) else None for right in parts
            ]
        return found

    def said(self, index: int) -> dict[str, Label]:
        """The label that each output gives to a picture."""
        return {output: self.classes[int(found[index])] for output, found in self.predicted.items()}

    def write(self, path: Path) -> None:
        """A JSON line per picture: session, where it comes from, label, each output's answer,
        weights.
        """
        lines: list[dict[str, Any]] = []
        for session, pictures in enumerate(self.collections, 1):
            for i, label in enumerate(pictures.labels):
                at = len(lines)
                line = {
                    "session": session,
                    "picture": pictures.where(i),
                    "label": label,
                    "predicted": self.said(at),
                }
                weights = {
                    output: round(float(found[at]), 4) for output, found in self.weights.items()
                }
                more = {"weights": weights} if weights else {}
                lines.append({**line, **more})
        write_lines(path, lines)


@torch.no_grad()
def evaluate(method: Method, collections: Sequence[Pictures], fit: Trainer, what: str) -> Answers:
    """The answers to ``collections``, gathered from each process's share; ``what`` names it for
    progress.
    """
    index = {label: i for i, label in enumerate(method.classes)}
    targets = torch.tensor(
        [index.get(label, -1) for pictures in collections for label in pictures.labels]
    ).long()
    weighed: list[str] = []
    # a row per picture: each output's class, then each one's confidence, then the weights
    found = [torch.empty(0, 2 * len(method.outputs))]
    method.eval()
    with fit.progress.phase(f"Session {fit.session}  {what}", len(targets)) as shown:
        for pictures in filter(len, collections):
            rows = []
            for images in fit.views(DeviceLoader(pictures, fit.transform, fit.processes.device)):
                logits = checked(method, all_logits(method, images), len(images))
                weights = method.weights(logits)
                weighed = list(weights)
                largest = [each.float().softmax(dim=1).amax(dim=1) for each in logits.values()]
                made = [*(each.argmax(dim=1) for each in logits.values()), *largest]
                made += weights.values()
                rows.append(torch.stack([column.float() for column in made], dim=1))
                shown.advance(len(images) * fit.processes.count)
            found.append(fit.processes.gather(torch.cat(rows), len(pictures)).cpu())
    columns = list(torch.cat([part for part in found if len(part)] or found).T)
    said = {output: columns.pop(0).long() for output in method.outputs}
    sure = {output: columns.pop(0) for output in method.outputs}
    counts = dict(zip(weighed, columns, strict=True))
    return Answers(collections, list(method.classes), targets, said, counts, sure)


def checked(method: Method, logits: dict[str, Tensor], pictures: int) -> dict[str, Tensor]:
    """What ``answer`` has given, if it has a row for each picture and a column for each class,
    by output.
    """
    name = f"{type(method).__name__}.answer"
    classes = len(method.classes)
    if tuple(logits) != method.outputs:
        raise ValueError(
            f"{name} gives {', '.join(logits)}, but its outputs are {', '.join(method.outputs)}."
        )
    for output, found in logits.items():
        if found.shape != (pictures, classes):
            there = f"there are {pictures} pictures and {classes} classes"
            raise ValueError(f"{name} gives {tuple(found.shape)} for {output}, but {there}.")
    return logits
