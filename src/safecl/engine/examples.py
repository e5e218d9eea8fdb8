"""For the page of a run: test pictures with what the method says of them, and features before and after tuning."""

import json
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor
from torchvision.transforms.functional import to_pil_image

from safecl.atomic import write_bytes, write_json
from safecl.engine.device_loader import DeviceLoader
from safecl.engine.evaluate import Answers
from safecl.errors import SafeclError
from safecl.methods.method import Method
from safecl.streams.pictures.images import Transform, join

EXAMPLES = 24  # drawn by chance
PAIRS, EACH_PAIR = 6, 2  # pairs of classes that are confused most often, and mistakes shown of each
SIDE, QUALITY = 144, 90  # largest side of a stored picture, and its JPEG quality
MAPPED_CLASSES, MAPPED_EACH = 10, 20  # whose features are kept, half of them of the first session; pictures of each
DIMENSIONS = 32  # principal components that are kept


def write_examples(folder: Path, answers: Answers, transform: Transform) -> None:
    """Keep pictures drawn by chance, mistakes of confused pairs, and right answers like them."""
    pairs, like = confused(answers)
    chosen = {"chance": by_chance(answers.counts), "pair": pairs, "like": like}
    every, ends = join(answers.collections), list(accumulate(answers.counts))
    labels, notes = every.labels, list[dict[str, Any]]()
    try:
        (folder / "examples").mkdir(exist_ok=True)
        for why, position in ((why, position) for why, positions in chosen.items() for position in positions):
            file = f"examples/{len(notes):02d}.jpg"
            image = to_pil_image(every.plain([position], transform)[0])
            image.thumbnail((SIDE, SIDE))
            image.save(folder / file, quality=QUALITY)
            about = {"file": file, "why": why, "label": labels[position], "session": 1 + bisect_right(ends, position)}
            notes.append({**about, "predictions": answers.said(position)})
        write_json(folder / "examples.json", notes)
    except OSError as error:
        raise SafeclError(f"The examples in {folder} could not be written ({error.strerror}).") from error


def by_chance(counts: list[int]) -> list[int]:
    """Positions among all pictures, as many of each collection, drawn without a look at the answers."""
    each, start, found = max(EXAMPLES // max(len(counts), 1), 1), 0, []
    for number, count in enumerate(counts, 1):
        found += [start + int(i) for i in np.random.RandomState(number).permutation(count)[:each]]
        start += count
    return found


def confused(answers: Answers) -> tuple[list[int], list[int]]:
    """Positions of mistakes in the most confused pairs, the most frequent first, and of what they are taken for."""
    targets, said = answers.targets.numpy(), answers.main.numpy()
    wrong = (targets != said) & (targets >= 0)
    pairs, times = np.unique(np.stack([targets[wrong], said[wrong]], axis=1), axis=0, return_counts=True)
    most = pairs[np.argsort(-times, kind="stable")[:PAIRS]]
    mistakes = [int(i) for a, b in most for i in np.flatnonzero((targets == a) & (said == b))[:EACH_PAIR]]
    taken_for = dict.fromkeys(int(b) for _, b in most)
    return mistakes, [int(i) for b in taken_for for i in np.flatnonzero((targets == b) & (said == b))[:1]]


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
    """Positions of test pictures, spread evenly over those of classes of the first session and of later ones."""
    targets = answers.targets.numpy()
    first = np.unique(targets[: answers.counts[0]])
    later = np.setdiff1d(targets[targets >= 0], first)
    early = _spread(first, max(MAPPED_CLASSES // 2, MAPPED_CLASSES - len(later)))
    classes = early + _spread(later, MAPPED_CLASSES - len(early))
    return [i for c in classes for i in _spread(np.flatnonzero(targets == c), MAPPED_EACH)]


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
