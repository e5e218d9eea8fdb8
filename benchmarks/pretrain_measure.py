"""How good frozen features are with few pictures per class: nearest class mean and
random-projection ridge.

python benchmarks/pretrain_measure.py safecl_micro.safetensors --measure flowers102_20x12 pacs_30x15
--sizes 64 128
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from pretrain_data import Labelled, drawn, read_labelled
from pretrain_networks import read_network
from torch import Tensor

from safecl.streams.drawn.drawing import DIFFICULTY, SIDE, Difficulty
from safecl.streams.drawn.glyphs import POOL

Features: TypeAlias = Callable[[Tensor], Tensor]
_BETAS = torch.logspace(-3, 6, 19, dtype=torch.float64)


def exam_glyphs(count: int) -> dict[str, Labelled]:
    """30 pictures of each of some characters of the stream, at the difficulty of pre-training and
    at the stream's.
    """
    characters = [POOL[int(i)] for i in np.random.RandomState(0).permutation(len(POOL))[:count]]
    return {
        "characters": drawn(characters, 30, 0, Difficulty()),
        "glyphs": drawn(characters, 30, 0, DIFFICULTY),
    }


def figures(
    file: Path,
    glyphs: Mapping[str, Labelled],
    folders: Sequence[Path],
    sizes: Sequence[int],
    shots: int,
    device: torch.device,
) -> dict[str, dict[str, dict[str, float]]]:
    """Few-shot accuracy of the network in ``file``, by size and by set of pictures; drawings at
    their own size only.
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    for size in sizes:
        features = extractor(file, size, device)
        here = found.setdefault(str(size), {})
        for name, pictures in glyphs.items() if size == SIDE else ():
            here[name] = few_shot(*_parted(pictures.to(device), 20, 30), features, shots)
        for folder in folders:
            train = read_labelled(folder / "train", size)
            test = read_labelled(folder / "test", size, train.classes)
            here[folder.name] = few_shot(train.to(device), test.to(device), features, shots)
    return found


def extractor(file: Path, size: int, device: torch.device) -> Features:
    """uint8 (n, 3, size, size) → CLS features after the final norm (n, d)."""
    vit, colours = read_network(file, size)
    vit = vit.to(device)
    colours = colours.to(device)

    @torch.inference_mode()
    def features(pixels: Tensor) -> Tensor:
        parts = ((p.float() / 255 - colours[0]) / colours[1] for p in pixels.split(256))
        return torch.cat([vit.forward_features(part)[:, 0] for part in parts])

    return features


def few_shot(
    train: Labelled, test: Labelled, features: Features, shots: int = 20, draws: int = 3
) -> dict[str, float]:
    """Mean accuracy over ``draws`` choices of ``shots`` training pictures of each folder."""
    known = features(train.pixels)
    queries = features(test.pixels)
    means = []
    ridges = []
    for draw in range(draws):
        random = torch.Generator().manual_seed(draw)
        order = torch.randperm(len(train.labels), generator=random)
        groups = train.groups.cpu()[order]
        # (groups, N)
        rank = torch.stack([(groups == g).cumsum(0) for g in range(int(groups.max()) + 1)])
        chosen = order[rank.gather(0, groups[None])[0] <= shots].to(known.device)
        x = known[chosen]
        y = train.labels[chosen]
        means.append(accuracy(nearest_mean(x, y, queries, len(train.classes)), test.labels))
        ridges.append(accuracy(ridge(x, y, queries, len(train.classes), random), test.labels))
    return {"nearest mean": round(sum(means) / draws, 4), "ridge": round(sum(ridges) / draws, 4)}


def _parted(pictures: Labelled, learn: int, each: int) -> tuple[Labelled, Labelled]:
    """The first ``learn`` of ``each`` pictures per class, and the others."""
    first = torch.arange(len(pictures.labels), device=pictures.labels.device) % each < learn
    return pictures.where(first), pictures.where(~first)


def nearest_mean(x: Tensor, y: Tensor, queries: Tensor, classes: int) -> Tensor:
    """The class whose mean feature has the largest cosine: (n,)."""
    means = F.one_hot(y, classes).to(x.dtype).T @ x
    return (F.normalize(queries, dim=1) @ F.normalize(means, dim=1).T).argmax(1)


def ridge(
    x: Tensor, y: Tensor, queries: Tensor, classes: int, random: torch.Generator, width: int = 5000
) -> Tensor:
    """Ridge regression to one-hot targets on relu of a random projection; β by holding out a fifth
    of ``x``: (n,).
    """
    projection = torch.randn(x.shape[1], width, generator=random).to(x)
    h = (x @ projection).relu()
    h_queries = (queries @ projection).relu()
    target = F.one_hot(y, classes).double()
    held = (torch.randperm(len(x), generator=random) < len(x) // 5).to(x.device)
    outputs = _dual(h[~held], target[~held], h[held], _BETAS)
    best = max(range(len(_BETAS)), key=lambda i: accuracy(outputs[i].argmax(1), y[held]))
    return _dual(h, target, h_queries, _BETAS[best : best + 1])[0].argmax(1)


def _dual(h: Tensor, target: Tensor, queries: Tensor, betas: Tensor) -> list[Tensor]:
    """Ridge outputs for each β through the n × n Gram matrix, which is smaller than width × width
    here.
    """
    values, vectors = torch.linalg.eigh((h @ h.T).double())
    cross = (queries @ h.T).double() @ vectors
    inner = vectors.T @ target
    return [cross @ (inner / (values.clamp(min=0) + beta)[:, None]) for beta in betas.tolist()]


def accuracy(predicted: Tensor, labels: Tensor) -> float:
    return float((predicted == labels).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("weights", type=Path)
    parser.add_argument(
        "--measure",
        type=Path,
        nargs="*",
        default=[],
        help="folders with train/…/CLASS and test/…/CLASS",
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--shots", type=int, default=20)
    parser.add_argument(
        "--glyphs", type=int, default=50, help="characters of the stream to measure on"
    )
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    found = figures(
        args.weights, exam_glyphs(args.glyphs), args.measure, args.sizes, args.shots, device
    )
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
