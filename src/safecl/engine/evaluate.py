"""How many pictures each output of a method gets right."""

from collections.abc import Sequence

import torch
from torch import Tensor

from safecl.engine.device_loader import DeviceLoader
from safecl.engine.fit import Trainer
from safecl.methods.method import Method
from safecl.streams.images import Pictures

Accuracy = dict[str, list[float]]  # by output, one number a collection


@torch.no_grad()
def evaluate(method: Method, collections: Sequence[Pictures], fit: Trainer, what: str) -> tuple[Accuracy, list[int]]:
    """Accuracy by output on each of ``collections``, and how many pictures there are; ``what`` names it for progress.

    Every process looks at its share of the pictures; the answers are gathered, each picture's once.
    """
    index = {label: i for i, label in enumerate(method.classes)}
    accuracy: Accuracy = {output: [] for output in method.outputs}
    counts = [len(pictures) for pictures in collections]
    method.eval()
    with fit.progress.phase(f"Session {fit.session}  {what}", sum(counts)) as shown:
        for pictures, count in zip(collections, counts, strict=True):
            targets = torch.tensor([index.get(label, -1) for label in pictures.labels], dtype=torch.long)
            found: dict[str, list[Tensor]] = {output: [] for output in method.outputs}
            for images in fit.views(DeviceLoader(pictures, fit.transform, fit.processes.device)):
                for output, logits in method.all_logits(images).items():
                    found[output].append(logits.argmax(dim=1))
                shown.advance(len(images) * fit.processes.count)
            for output, chunks in found.items():
                right = 0
                if count:
                    guesses = fit.processes.gather(torch.cat(chunks), count).cpu()
                    right = int((guesses == targets).sum())
                accuracy[output].append(right / max(count, 1))
    return accuracy, counts
