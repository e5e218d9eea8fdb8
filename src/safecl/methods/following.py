"""What SAFE keeps of old sessions so that the statistics of its fast learner follow it."""

import torch
from torch import Tensor, nn

from safecl.heads.gaussians import SharedGaussians
from safecl.heads.linear_map import LinearMap
from safecl.heads.ridge import RidgeHead
from safecl.heads.statistics import Movement, movement
from safecl.randomness import generator

POINTS_PER_DIMENSION = 2


class Following(nn.Module):
    """Where the slow learner's features lie, and a map from there to the fast learner's.

    The slow learner is frozen, so what is kept of its features stays true. The fast learner moves in every session;
    both learners see the pictures of a session, and from these a linear map from slow to fast features is fitted. It
    takes the slow learner's statistics to the fast learner's, by means of points drawn from Gaussians.
    """

    def __init__(self, width: int, seed: int = 0) -> None:
        super().__init__()
        self.seed, self.kept, self.map = seed, SharedGaussians(width), LinearMap(width)

    def add(self, f_slow: Tensor, targets: Tensor) -> None:
        """Keep the slow learner's features (N, d) of a session, with class indices (N,)."""
        self.kept.add(f_slow, targets)

    def move(self, f_slow: Tensor, f_fast: Tensor, targets: Tensor) -> None:
        """Fit the map on the features (N, d) of a session, with class indices (N,)."""
        self.map.fit(f_slow, f_fast, targets)

    @torch.no_grad()
    def follow(self, slow: RidgeHead, fast: RidgeHead) -> None:
        """Compute the statistics of the fast learner's head, and solve it."""
        fast.statistics.follow(slow.statistics, self.movement(fast))
        fast.solve()

    @torch.no_grad()
    def movement(self, fast: RidgeHead) -> Movement:
        """How the slow learner's projected features move to become those in the statistics of the fast one's head."""
        points = self.kept.sample(POINTS_PER_DIMENSION * self.kept.width, generator(self.seed, "memory"))
        return movement(fast.project(points), fast.project(self.map(points)))
