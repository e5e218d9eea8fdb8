"""How many test pictures each output of a method gets right."""

import torch
from torch import Tensor

from safecl.engine.device_loader import DeviceLoader
from safecl.engine.fit import Fitting
from safecl.methods.method import Method
from safecl.streams.stream import Stream


@torch.no_grad()
def evaluate(method: Method, stream: Stream, upto: int, fit: Fitting) -> tuple[dict[str, list[float]], list[int]]:
    """Accuracy by output on the test pictures of each session, and how many there are.

    Class-incremental: the sessions seen so far. Domain-incremental: every domain, those to come as well. Every process
    looks at its share; the answers are gathered, each picture's once.
    """
    sessions = range(1, (len(stream) if stream.protocol == "domain" else upto) + 1)
    index = {label: i for i, label in enumerate(method.classes)}
    accuracy: dict[str, list[float]] = {output: [] for output in method.outputs}
    counts = [len(stream.test(i)) for i in sessions]
    method.eval()
    with fit.progress.phase(f"Session {upto}  evaluation", sum(counts)) as phase:
        for i, count in zip(sessions, counts, strict=True):
            pictures = stream.test(i)
            targets = torch.tensor([index.get(label, -1) for label in pictures.labels], dtype=torch.long)
            found: dict[str, list[Tensor]] = {output: [] for output in method.outputs}
            for images in fit.views(DeviceLoader(pictures, fit.transform, fit.processes.device)):
                for output, logits in method.all_logits(images).items():
                    found[output].append(logits.argmax(dim=1))
                phase.advance(len(images) * fit.processes.count)
            for output, chunks in found.items():
                right = 0
                if count:
                    guesses = fit.processes.gather(torch.cat(chunks), count).cpu()
                    right = int((guesses == targets).sum())
                accuracy[output].append(right / max(count, 1))
    return accuracy, counts
