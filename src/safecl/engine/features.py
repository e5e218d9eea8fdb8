"""Features of some test pictures, before and after tuning, for the page of a run."""

import json
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor

from safecl.atomic import write_bytes
from safecl.engine.device_loader import DeviceLoader
from safecl.engine.evaluate import Answers
from safecl.methods.method import Method
from safecl.streams.pictures.images import Transform, join

CLASSES, EACH = 10, 20  # classes, from the first to the last that was learned, and pictures of each
DIMENSIONS = 32  # principal components that are kept


@torch.no_grad()
def write_features(folder: Path, method: Method, answers: Answers, transform: Transform) -> None:
    """Keep features.safetensors: by network, the principal components (n, 32) of the features of n ≤ 200 pictures.

    Kept are the frozen backbone and, of the method's networks with other features than it, the first and the last.
    Nothing is written where there is no test picture.
    """
    chosen = some_of_each(answers)
    if not chosen:
        return
    every = join(answers.collections)
    parts: dict[str, list[Tensor]] = {}
    for images in DeviceLoader(every, transform, method.backbone.device).plain(chosen):
        found = {"backbone": method.backbone.features(images), **method.embed(images)}
        for name, features in found.items():
            parts.setdefault(name, []).append(features.float().cpu())
    networks = {name: torch.cat(chunks) for name, chunks in parts.items()}
    tuned = [name for name, features in networks.items() if not torch.equal(features, networks["backbone"])]
    shown = ["backbone", *dict.fromkeys((*tuned[:1], *tuned[-1:]))]
    tensors = {name: components(networks[name]) for name in shown}
    about = {"labels": json.dumps([every.labels[i] for i in chosen], ensure_ascii=False)}
    write_bytes(folder / "features.safetensors", save(tensors, about))


def some_of_each(answers: Answers) -> list[int]:
    """Positions of test pictures, spread evenly over those of classes that are spread over the order of learning."""
    targets = answers.targets.numpy()
    classes = _spread(np.unique(targets[targets >= 0]), CLASSES)
    return [i for c in classes for i in _spread(np.flatnonzero(targets == c), EACH)]


def _spread(values: NDArray[np.int64], most: int) -> list[int]:
    """At most ``most`` of the values, evenly spaced, the first and the last among them."""
    positions = np.linspace(0, len(values) - 1, min(most, len(values))).round().astype(int)
    return [int(value) for value in values[positions]]


def components(features: Tensor) -> Tensor:
    """The first principal components of features: (n, d) → float16 (n, 32), scaled to a largest value of 1."""
    centred = features - features.mean(dim=0)
    u, s, _ = torch.linalg.svd(centred, full_matrices=False)
    kept: Tensor = (u * s)[:, :DIMENSIONS]
    return (kept / kept.abs().max().clamp_min(1e-12)).half().contiguous()
