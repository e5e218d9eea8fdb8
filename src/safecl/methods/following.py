"""What SAFE keeps of old sessions so that the statistics of its fast learner follow it."""

from torch import Tensor, nn

from safecl.heads.gaussians import SharedGaussians
from safecl.heads.linear_map import LinearMap
from safecl.heads.ridge import RidgeHead
from safecl.heads.statistics import Movement, movement
from safecl.randomness import generator

POINTS_PER_DIMENSION = 2


class Following(nn.Module):
    """Where the slow learner's features lie, and a map from there to the fast learner's, with an offset per class.

    What is kept of the frozen slow learner's features stays true. The map, fitted on the pictures of a session, takes
    its statistics to the fast learner's, by means of points drawn from Gaussians. ``untuned``: where the untuned
    backbone's features (N, ``plain``) lie, if they are asked for.
    """

    def __init__(self, width: int, seed: int = 0, plain: int = 0) -> None:
        super().__init__()
        self.seed, self.kept, self.map = seed, SharedGaussians(width, width), LinearMap(width)
        self.untuned = SharedGaussians(plain)

    def forward(self, features: Tensor, targets: Tensor) -> Tensor:
        """The slow learner's features (N, v · d) of pictures of classes (N,) as the fast one's: each of v views."""
        found: Tensor = self.map(features) + self.kept.offsets[targets].repeat(1, features.shape[1] // self.kept.width)
        return found

    def fit(self, slow: Tensor, fast: Tensor, targets: Tensor) -> None:
        """Fit the map on features (N, v · d) of a session's pictures, which are ``kept``, and note what it leaves."""
        self.map.fit(slow, fast, targets)
        left = fast.to(self.kept.offsets) - self.map(slow)
        self.kept.move(left.reshape(len(targets), -1, self.kept.width).mean(dim=1), targets)

    def follow(self, slow: RidgeHead, fast: RidgeHead) -> Movement:
        """Compute the statistics of the fast learner's head, and solve it; gives its ``movement``."""
        found = self.movement(fast)
        fast.statistics.follow(slow.statistics, found)
        fast.solve()
        return found

    def movement(self, fast: RidgeHead) -> Movement:
        """How the slow learner's projected features move to become those in the statistics of the fast one's head."""
        points, classes = self.kept.sample(POINTS_PER_DIMENSION * self.kept.width, generator(self.seed, "memory"))
        return movement(fast.project(points), fast.project(self(points, classes)))
