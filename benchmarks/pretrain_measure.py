"""How good frozen features are with few pictures a class: nearest class mean and random-projection ridge."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch
import torch.nn.functional as F
from pretrain_data import Labelled, drawn, read
from torch import Tensor

from safecl.streams.characters import POOL
from safecl.streams.stream import class_order

Features: TypeAlias = Callable[[Tensor], Tensor]
_BETAS = torch.logspace(-3, 6, 19, dtype=torch.float64)


def few_shot(train: Labelled, test: Labelled, features: Features, shots: int = 20, draws: int = 3) -> dict[str, float]:
    """Mean accuracy over ``draws`` choices of ``shots`` training pictures a class."""
    known, asked = features(train.pixels), features(test.pixels)
    means, ridges = [], []
    for draw in range(draws):
        random = torch.Generator().manual_seed(draw)
        order = torch.randperm(len(train.labels), generator=random)
        labels = train.labels.cpu()[order]
        rank = torch.stack([(labels == c).cumsum(0) for c in range(len(train.classes))])  # (classes, N)
        chosen = order[rank.gather(0, labels[None])[0] <= shots].to(known.device)
        x, y = known[chosen], train.labels[chosen]
        means.append(accuracy(nearest_mean(x, y, asked, len(train.classes)), test.labels))
        ridges.append(accuracy(ridge(x, y, asked, len(train.classes), random), test.labels))
    return {"nearest mean": sum(means) / draws, "ridge": sum(ridges) / draws}


@dataclass
class Exam:
    """What a network is measured on: 30 drawings of each of some characters, and pictures if there are any."""

    glyphs: Labelled
    train: Labelled | None
    test: Labelled | None

    @classmethod
    def prepare(cls, classes: int, folder: Path | None) -> "Exam":
        glyphs = drawn([str(c) for c in class_order(POOL, 0)[:classes]], 30, seed=0)
        if folder is None:
            return cls(glyphs, None, None)
        train = read([folder / "train"])
        return cls(glyphs, train, read([folder / "test"], train.classes))

    def figures(self, features: Features, shots: int, device: torch.device) -> dict[str, float]:
        found = {"glyphs nearest mean": glyph_accuracy(self.glyphs.to(device), features)}
        if self.train is not None and self.test is not None:
            found |= few_shot(self.train.to(device), self.test.to(device), features, shots)
        return {name: round(value, 4) for name, value in found.items()}


def glyph_accuracy(pictures: Labelled, features: Features) -> float:
    """Nearest class mean on characters of the stream: 20 pictures a class to learn from, 10 to ask."""
    learn = torch.arange(len(pictures.labels), device=pictures.labels.device) % 30 < 20
    known, asked = features(pictures.pixels[learn]), features(pictures.pixels[~learn])
    said = nearest_mean(known, pictures.labels[learn], asked, len(pictures.classes))
    return accuracy(said, pictures.labels[~learn])


def nearest_mean(x: Tensor, y: Tensor, asked: Tensor, classes: int) -> Tensor:
    """The class whose mean feature has the largest cosine: (n,)."""
    means = F.one_hot(y, classes).to(x.dtype).T @ x
    return (F.normalize(asked, dim=1) @ F.normalize(means, dim=1).T).argmax(1)


def ridge(x: Tensor, y: Tensor, asked: Tensor, classes: int, random: torch.Generator, width: int = 5000) -> Tensor:
    """Ridge regression to one-hot targets on relu of a random projection; β by holding out a fifth of ``x``: (n,)."""
    projection = torch.randn(x.shape[1], width, generator=random).to(x)
    h, h_asked = (x @ projection).relu(), (asked @ projection).relu()
    target = F.one_hot(y, classes).double()
    held = (torch.randperm(len(x), generator=random) < len(x) // 5).to(x.device)
    outputs = _dual(h[~held], target[~held], h[held], _BETAS)
    best = max(range(len(_BETAS)), key=lambda i: accuracy(outputs[i].argmax(1), y[held]))
    return _dual(h, target, h_asked, _BETAS[best : best + 1])[0].argmax(1)


def _dual(h: Tensor, target: Tensor, asked: Tensor, betas: Tensor) -> list[Tensor]:
    """Ridge outputs for each β through the n × n Gram matrix, which is smaller than width × width here."""
    values, vectors = torch.linalg.eigh((h @ h.T).double())
    cross = (asked @ h.T).double() @ vectors
    inner = vectors.T @ target
    return [cross @ (inner / (values.clamp(min=0) + beta)[:, None]) for beta in betas.tolist()]


def accuracy(predicted: Tensor, labels: Tensor) -> float:
    return float((predicted == labels).float().mean())
