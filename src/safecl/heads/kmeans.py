"""K-means by Lloyd's iterations from a k-means++ start, on the device of the features."""

import torch
from torch import Tensor

STARTS, ITERATIONS = 5, 100


@torch.no_grad()
def kmeans(features: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """The best centres (count, d) of several starts, for features (N, d); with N < count some stand twice.

    ``generator`` is one of the CPU.
    """
    found = [_lloyd(features, _spread(features, count, generator)) for _ in range(STARTS)]
    return min(found, key=lambda one: one[1])[0]


def _spread(features: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """k-means++: each centre is drawn with a chance that grows with the squared distance to those before."""
    chosen = [int(torch.randint(len(features), (1,), generator=generator))]
    nearest = (features - features[chosen[0]]).square().sum(dim=1)
    for _ in range(count - 1):
        chances = nearest.double().cumsum(0)
        at = torch.rand((), generator=generator).to(chances) * chances[-1]
        chosen.append(min(int(torch.searchsorted(chances, at, right=True)), len(features) - 1))
        nearest = torch.minimum(nearest, (features - features[chosen[-1]]).square().sum(dim=1))
    return features[chosen]


def _lloyd(features: Tensor, centres: Tensor) -> tuple[Tensor, float]:
    """Iterate until nothing moves; the centres, and the sum of squared distances to them."""
    before = None
    for _ in range(ITERATIONS):
        member = torch.cdist(features, centres).argmin(dim=1)
        if before is not None and torch.equal(member, before):
            break
        # By a matrix product: index_add on CUDA adds in any order, and several processes must agree to the bit.
        belongs = torch.nn.functional.one_hot(member, len(centres)).to(features)
        counts = belongs.sum(dim=0)[:, None]
        centres = torch.where(counts > 0, (belongs.T @ features) / counts.clamp(min=1), centres)
        before = member
    return centres, float(torch.cdist(features, centres).amin(dim=1).square().sum())
