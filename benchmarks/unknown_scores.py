"""Which score tells pictures of classes that were never taught from pictures of known ones? On frozen features.

    python benchmarks/unknown_scores.py --assets DIR --data flowers102_20x12 cifar100_200x60_jpeg --backbones micro \
        vit_tiny_patch16_224.augreg_in21k_ft_in1k=DIR/vit_tiny_augreg.safetensors

DIR holds the pictures in folders train/CLASS and test/CLASS. Features are extracted once for each backbone and dataset.
For each seed half of the classes, drawn by chance, are taught with 20 pictures each; all test pictures are asked.
Printed are, as means over the seeds, the AUROC and the share of unknown pictures below the score of 5 % of the known.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from unknowns import auroc

from safecl.backbone.load import load_backbone
from safecl.backbone.settings import BackboneSettings
from safecl.heads.ridge import RidgeHead
from safecl.heads.settings import RidgeSettings
from safecl.streams.pictures.images import Pictures, Transform
from safecl.streams.pictures.load import batches
from safecl.streams.sources.folder import read_folder
from safecl.streams.stream import positions

EACH, RATE, SHRINK = 20, 0.05, 0.1  # pictures of a class; false alarms; share of a multiple of I in a covariance


@torch.no_grad()
def features(backbone: str, weights: str | None, pictures: Pictures) -> Tensor:
    """(N, d) of plain views."""
    network = load_backbone(BackboneSettings(name=backbone, weights=weights))
    views = batches(pictures, range(len(pictures)), 32, "plain", Transform(network.size))
    return torch.cat([network.features(batch.pictures.float() / 255) for batch in views])


def scores(f: Tensor, y: Tensor, x: Tensor, seed: int) -> Iterator[tuple[str, Tensor]]:
    """How known pictures with features ``x`` (N, d) look, by several scores. Taught: ``f`` (n, d) with ``y`` (n,)."""
    head = RidgeHead(f.shape[1], RidgeSettings(), seed)
    head.add(f, y)
    head.solve()
    logit = head.logits(x).amax(dim=1).double()
    yield "largest logit", logit
    unit, asked = F.normalize(f, dim=1).double(), F.normalize(x, dim=1).double()
    means = torch.stack([unit[y == c].mean(dim=0) for c in range(int(y.max()) + 1)])
    within, middle = unit - means[y], unit.mean(dim=0)
    own = whitening(within.T @ within / (len(unit) - len(means)))
    every = whitening((unit - middle).T @ (unit - middle) / len(unit))
    near = torch.cdist(asked @ own, means @ own).square().amin(dim=1)
    relative = ((asked - middle) @ every).square().sum(dim=1) - near
    yield "Mahalanobis", -near
    yield "relative Mahalanobis", relative
    yield "1 nearest picture", (asked @ unit.T).amax(dim=1)
    yield "5th nearest picture", (asked @ unit.T).topk(5, dim=1).values[:, -1]
    yield "nearest class mean", (asked - middle).matmul(F.normalize(means - middle, dim=1).T).amax(dim=1)
    yield "largest logit + relative Mahalanobis", standard(logit) + standard(relative)


def whitening(covariance: Tensor) -> Tensor:
    """W with W Wᵀ = the inverse of a covariance (d, d) that is drawn to a multiple of I."""
    eye = torch.eye(len(covariance), dtype=covariance.dtype)
    return torch.linalg.cholesky(
        torch.linalg.inv((1 - SHRINK) * covariance + SHRINK * covariance.diagonal().mean() * eye)
    )


def standard(values: Tensor) -> Tensor:
    return (values - values.mean()) / values.std()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--assets", type=Path, required=True)
    parser.add_argument("--data", nargs="+", default=["flowers102_20x12"])
    parser.add_argument("--backbones", nargs="+", default=["micro"], help="timm names, each with =WEIGHTS if wanted")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    for backbone in options.backbones:
        name, _, weights = backbone.partition("=")
        for folder in options.data:
            data = read_folder(options.assets / folder, duplicates="allow")
            dice, own = np.random.RandomState(0), positions(data.train.labels)
            rows = [i for label in data.classes for i in dice.permutation(own[label])[:EACH]]
            train, test = data.train.subset(rows), data.test
            taught_features, x = features(name, weights or None, train), features(name, weights or None, test)
            found: dict[str, list[tuple[float, float]]] = {}
            for seed in range(options.seeds):
                order = np.random.RandomState(seed).permutation(len(data.classes))[: len(data.classes) // 2]
                index = {data.classes[c]: i for i, c in enumerate(order)}
                here = [i for i, label in enumerate(train.labels) if label in index]
                y = torch.tensor([index[train.labels[i]] for i in here])
                known = torch.tensor([label in index for label in test.labels])
                for score, values in scores(taught_features[here], y, x, seed):
                    limit = values[known].quantile(RATE)
                    share = float((values[~known] < limit).double().mean())
                    found.setdefault(score, []).append((auroc(values[known], values[~known]), share))
            for score, pairs in found.items():
                area, share = np.mean(pairs, axis=0)
                print(f"{name}  {folder}  {score:<38} AUROC {area:.3f}  found {100 * share:.1f} %", flush=True)


if __name__ == "__main__":
    main()
