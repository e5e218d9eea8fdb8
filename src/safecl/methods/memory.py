"""What SAFE keeps of old sessions so that the statistics of its fast learner follow it."""

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from safecl.heads.features import KeptFeatures
from safecl.heads.linear_map import LinearMap
from safecl.heads.low_rank import LowRankGaussians
from safecl.randomness import generator


class SlowMemory(nn.Module):
    """The slow learner's features of all pictures, as Gaussians of the classes or as int8, and a map to the fast one's.

    The slow learner is frozen, so what is kept of its features stays true. The fast learner moves in every session;
    both learners see the pictures of a session, and from these a linear map from slow to fast features is fitted.
    """

    def __init__(self, width: int, kind: Literal["gaussians", "features"], seed: int = 0) -> None:
        super().__init__()
        self.seed = seed
        self.kept = KeptFeatures(width) if kind == "features" else LowRankGaussians(width)
        self.map = LinearMap(width)

    @property
    def pictures(self) -> int:
        return self.kept.pictures

    def add(self, f_slow: Tensor, targets: Tensor) -> None:
        """Keep the slow learner's features (N, d) of a session, with class indices (N,)."""
        self.kept.add(f_slow, targets)

    def move(self, f_slow: Tensor, f_fast: Tensor, targets: Tensor) -> None:
        """Fit the map on the features (N, d) of a session, with class indices (N,)."""
        self.map.fit(f_slow, f_fast, targets)

    @torch.no_grad()
    def recall(self, most: int) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Slow features (n, d), fast ones (n, d), class indices (n,) and weights (n,) that stand for all pictures.

        ``most``: pictures for which Gaussians are sampled in full; the samples of more pictures become fewer.
        """
        kept = self.kept
        parts = kept.recall() if isinstance(kept, KeptFeatures) else kept.recall(most, generator(self.seed, "memory"))
        for f_slow, targets, weights in parts:
            yield f_slow, self.map(f_slow), targets, weights
