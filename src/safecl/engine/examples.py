"""A few test pictures with what the method says of them, for the page of a run."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchvision.transforms.functional import to_pil_image

from safecl.atomic import write_json
from safecl.engine.device_loader import DeviceLoader
from safecl.errors import SafeclError
from safecl.methods.method import Method
from safecl.streams.images import Transform
from safecl.streams.stream import Stream

EXAMPLES = 24


@torch.no_grad()
def write_examples(folder: Path, method: Method, stream: Stream, device: torch.device) -> None:
    """Draw test pictures evenly from the sessions, by chance and not by result."""
    try:
        write_json(folder / "examples.json", _draw(folder, method, stream, stream.transform, device))
    except OSError as error:
        raise SafeclError(f"The examples in {folder} could not be written ({error.strerror}).") from error


def _draw(
    folder: Path, method: Method, stream: Stream, transform: Transform, device: torch.device
) -> list[dict[str, Any]]:
    (folder / "examples").mkdir(exist_ok=True)
    each = max(EXAMPLES // len(stream), 1)
    notes: list[dict[str, Any]] = []
    for number in range(1, len(stream) + 1):
        test = stream.test(number)
        chosen = np.random.RandomState(number).permutation(len(test))[:each].tolist()
        for images in DeviceLoader(test, transform, device).plain(chosen):
            answers = {output: logits.cpu() for output, logits in method.all_logits(images).items()}
            for k, image in enumerate(images):
                file = f"examples/{len(notes):02d}.png"
                to_pil_image(image.cpu()).save(folder / file)
                notes.append(
                    {
                        "file": file,
                        "label": test.labels[chosen[k]],
                        "session": number,
                        "predictions": {o: method.classes[int(z[k].argmax())] for o, z in answers.items()},
                        "confidence": _confidence(answers[method.outputs[-1]][k]),
                    }
                )
    return notes


def _confidence(logits: Tensor) -> float:
    return float(logits.softmax(dim=0).max())
