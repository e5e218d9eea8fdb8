"""A plain session of slow and fast learning, as the released code is built: what ``speed.py``
measures against.

float32 throughout; pictures decoded and augmented one by one by torchvision in loader processes;
two forward passes of the tuned network for each batch, one for the classification loss and one for
the distance to the teacher; a pass over the test pictures after every epoch; second-order
statistics on the CPU with six LU solves to choose β and one more for the weights.
"""

import copy
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from safecl.pet.attach import attach
from safecl.pet.settings import pet_settings

BETAS = (1e3, 1e4, 1e5, 1e6, 1e7, 1e8)


class Scale(nn.Module):
    """A layer, and a scale and a shift of what comes out of it."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.layer = layer
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.scale + self.shift


def tuned(vit: Any, kind: Any) -> Any:
    """A copy of ``vit`` with a PET in it, everything else frozen."""
    if kind != "ssf":
        return attach(copy.deepcopy(vit), pet_settings(kind))[0]
    vit = copy.deepcopy(vit).requires_grad_(False)
    d = vit.embed_dim
    vit.patch_embed.norm, vit.norm = Scale(vit.patch_embed.norm, d), Scale(vit.norm, d)
    for block in vit.blocks:
        block.norm1 = Scale(block.norm1, d)
        block.norm2 = Scale(block.norm2, d)
        for owner, name in (
            (block.attn, "qkv"),
            (block.attn, "proj"),
            (block.mlp, "fc1"),
            (block.mlp, "fc2"),
        ):
            layer = getattr(owner, name)
            setattr(owner, name, Scale(layer, layer.out_features))
    return vit.to(next(vit.parameters()).device)


class Items(Dataset[tuple[Tensor, int]]):
    """Pictures in memory, opened and transformed one at a time."""

    def __init__(
        self, arrays: np.ndarray, labels: np.ndarray, transform: Callable[[Image.Image], Tensor]
    ) -> None:
        self.arrays = arrays
        self.labels = labels
        self.transform = transform

    def __len__(self) -> int:
        return len(self.arrays)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(Image.fromarray(self.arrays[index])), int(self.labels[index])


def session(
    vit: Any,
    kind: str,
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    size: int,
    resize: int,
    epochs: int,
    features: int,
    batch: int,
    workers: int,
) -> dict[str, float]:
    """One later session with the teacher and the student that start as one; gives the seconds of
    each part.
    """
    device = next(vit.parameters()).device
    classes = int(max(train[1].max(), test[1].max())) + 1
    augmented = transforms.Compose(
        [
            transforms.RandomResizedCrop(size, (0.05, 1.0)),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
        ]
    )
    plain = transforms.Compose(
        [transforms.Resize(resize), transforms.CenterCrop(size), transforms.ToTensor()]
    )

    def loader(part: tuple[np.ndarray, np.ndarray], transform: Any, shuffle: bool = False) -> Any:
        return DataLoader(Items(*part, transform), batch, shuffle=shuffle, num_workers=workers)

    slow = tuned(vit, kind).eval().requires_grad_(False)
    fast = tuned(vit, kind).train()
    head = nn.Parameter(torch.randn(classes, vit.embed_dim, device=device))
    optimiser = torch.optim.SGD(
        [head, *(p for p in fast.parameters() if p.requires_grad)], 0.01, 0.9
    )

    def logits(f: Tensor) -> Tensor:
        return 10 * F.normalize(f, dim=1) @ F.normalize(head, dim=1).T

    seconds: dict[str, float] = {}
    for epoch in range(epochs + 1):
        if epoch == 1:  # the first one is a warm-up
            started = time.perf_counter()
        for images, targets in loader(train, augmented, shuffle=True):
            images = images.to(device)
            targets = targets.to(device)
            loss = F.cross_entropy(logits(fast.forward_features(images)[:, 0]), targets)
            again = fast.forward_features(images)[:, 0]
            with torch.no_grad():
                guide = slow.forward_features(images)[:, 0]
            loss = loss + 50 * (1 - F.cosine_similarity(again, guide)).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            float(loss.detach())
        with torch.no_grad():
            for images, _ in loader(test, plain):
                logits(fast.forward_features(images.to(device))[:, 0]).argmax(dim=1).cpu()
    seconds["training"] = time.perf_counter() - started

    started = time.perf_counter()
    found: list[Tensor] = []
    with torch.no_grad():
        for learner in (fast.eval(), slow):
            chunks = [
                learner.forward_features(x.to(device))[:, 0].cpu() for x, _ in loader(train, plain)
            ]
            found.append(torch.cat(chunks))
    seconds["features"] = time.perf_counter() - started

    started = time.perf_counter()
    projection = torch.randn(vit.embed_dim, features)
    weights = [
        heads(torch.relu(f @ projection), torch.from_numpy(train[1]), classes) for f in found
    ]
    seconds["heads"] = time.perf_counter() - started

    started = time.perf_counter()
    with torch.no_grad():
        for images, _ in loader(test, plain):
            z = [
                torch.relu(learner.forward_features(images.to(device))[:, 0].cpu() @ projection) @ w
                for learner, w in zip((fast, slow), weights, strict=True)
            ]
            (z[0] + z[1]).argmax(dim=1)
    seconds["evaluation"] = time.perf_counter() - started
    return seconds


def heads(h: Tensor, targets: Tensor, classes: int) -> Tensor:
    """Weights (M, C) by six LU solves on four fifths of the session, to choose β, and one on all of
    it.
    """
    y = F.one_hot(targets, classes).float()
    identity = torch.eye(h.shape[1])
    cut = len(h) * 4 // 5
    gram = h[:cut].T @ h[:cut]
    sums = h[:cut].T @ y[:cut]
    errors = [
        F.mse_loss(h[cut:] @ torch.linalg.solve(gram + b * identity, sums), y[cut:]) for b in BETAS
    ]
    best = BETAS[int(torch.stack(errors).argmin())]
    return torch.linalg.solve(h.T @ h + best * identity, h.T @ y)
