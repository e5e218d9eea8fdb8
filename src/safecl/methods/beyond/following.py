"""Decides: old statistics of the fast learner are the slow one's, moved to where it is now.
By: a linear map, fitted on each session's pictures, and the mean offset that it leaves of a class.
Worth: +1.0 for the fast learner and +0.5 for SAFE over statistics that stay as they were (48 cells,
docs/results.md); −2.5 and +11.3 at the extremes, after fifty sessions of two classes.
"""

from collections.abc import Mapping
from functools import partial

from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.heads.gaussians import SharedGaussians
from safecl.heads.gram import Movement, movement
from safecl.heads.left_out import LeftOut
from safecl.heads.linear_map import LinearMap
from safecl.heads.reading import Reading
from safecl.heads.ridge import RidgeHead
from safecl.methods.method import Fit, Included, Judging, More
from safecl.methods.parts import Parts, learned_from
from safecl.methods.safe import SAFE
from safecl.methods.settings.safe import SafeSettings
from safecl.methods.slow_fast import Features
from safecl.randomness import generator

POINTS_PER_DIMENSION = 2


class Following(nn.Module):
    """Where the slow learner's features lie, and a map from there to the fast learner's, with an
    offset per class.

    What is kept of the frozen slow learner's features stays true. The map, fitted on the pictures
    of a session, takes its statistics to the fast learner's, by means of points drawn from
    Gaussians. ``untuned``: where the untuned backbone's features (N, ``plain``) lie, if they are
    asked for.
    """

    def __init__(self, width: int, seed: int = 0, plain: int = 0) -> None:
        super().__init__()
        self.seed = seed
        self.kept = SharedGaussians(width, width)
        self.map = LinearMap(width)
        self.untuned = SharedGaussians(plain)

    def forward(self, features: Tensor, targets: Tensor) -> Tensor:
        """The slow learner's features (N, v · d) of pictures of classes (N,) as the fast one's:
        each of v views.
        """
        found: Tensor = self.map(features) + self.kept.offsets[targets].repeat(
            1, features.shape[1] // self.kept.width
        )
        return found

    def fit(self, slow: Tensor, fast: Tensor, targets: Tensor) -> None:
        """Fit the map on features (N, v · d) of a session's pictures, which are ``kept``, and note
        what it leaves.
        """
        self.map.fit(slow, fast, targets)
        left = fast.to(self.kept.offsets) - self.map(slow)
        self.kept.move(left.reshape(len(targets), -1, self.kept.width).mean(dim=1), targets)

    def follow(self, slow: RidgeHead, fast: RidgeHead) -> Movement:
        """Compute the statistics of the fast learner's head; gives its ``movement``."""
        found = self.movement(fast)
        fast.statistics.follow(slow.statistics, found)
        return found

    def movement(self, fast: RidgeHead) -> Movement:
        """How the slow learner's projected features move to become those in the statistics of the
        fast one's head.
        """
        points, classes = self.kept.sample(
            POINTS_PER_DIMENSION * self.kept.width, generator(self.seed, "memory")
        )
        return movement(fast.project(points), fast.project(self(points, classes)))


class Follows(SAFE):
    """Of the fast learner no sums are kept: its head follows from the slow learner's."""

    learning = ("following.",)

    def __init__(self, backbone: Backbone, settings: SafeSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.following = Following(backbone.width, seed)
        widths = backbone.widths
        self.ridge_fast = RidgeHead(widths, settings.ridge, seed, backbone.device, kept=False)

    def read(self, reading: Reading) -> None:
        super().read(reading)
        self.remember()

    def remember(self, plain: int = 0) -> None:
        """Begin with an empty memory, also of ``plain`` features of the untuned backbone."""
        made = Following(self.ridge_slow.width, self.seed, plain)
        self.following = made.to(self.backbone.device)

    def add(self, targets: Tensor, features: Mapping[str, Tensor], fit: Fit) -> Features:
        """What is added to the fast learner's head is evidence for its β."""
        added = super().add(targets, features, fit)
        self.following.kept.add(added["slow"][:, : self.ridge_slow.width], targets)
        if self.sessions:
            self.following.fit(features["slow"], features["fast"], targets)
        return added

    def settle(self, learned: int, more: More | None = None) -> Included:
        self.voices(learned)["slow"].head.solve()
        if learned == 1:  # nothing has moved yet
            return self.included
        fast = self.ridge_fast
        if more is not None and "ridge_fast" in more.changed:
            fast.statistics.relabel(*more.changed["ridge_fast"])
            fast.statistics.come(*more.changed["ridge_fast"])
            fast.solve(self.ridge_slow.weighting)
            return more.included
        moved = self.following.follow(self.ridge_slow, fast)
        fast.solve(
            self.ridge_slow.weighting
        )  # it knows the classes that the fast one is asked about
        return partial(self.included, moved=moved)

    def answer(
        self, features: Mapping[str, Tensor], left_out: LeftOut | None = None
    ) -> dict[str, Tensor]:
        if self.sessions != 1:
            return super().answer(features, left_out)
        alone = self.voiced("slow", self.experts()["slow"], features, left_out)
        return dict.fromkeys(SAFE.outputs, alone)

    def parts(self) -> Parts:
        return learned_from(super().parts(), {"following.kept": ("ridge_slow",)})

    @property
    def judging(self) -> Judging | None:
        """Always: the statistics, and what is kept of pictures, are of the learner of today."""
        return Followed(self)

    def included(
        self, features: Mapping[str, Tensor], moved: Movement | None = None
    ) -> dict[str, Tensor]:
        """The fast learner's head has the slow one's features, moved; ``moved``: how, if known."""
        if not self.ridge_fast.weight.numel():  # nothing has moved yet
            return {}
        rows = self.ridge_slow.project(features["slow"])
        return {"ridge_fast": (moved or self.following.movement(self.ridge_fast))(rows)}


class Followed(Judging):
    """Features of frozen networks, which stay true, are enough."""

    def __init__(self, method: Follows) -> None:
        self.method = method

    def keep(self, features: Mapping[str, Tensor]) -> Features:
        frozen = self.method.frozen()
        return {name: f for name, f in features.items() if name in frozen}

    def recall(self, kept: Mapping[str, Tensor], targets: Tensor) -> Features:
        return {**kept, "fast": self.method.following(kept["slow"], targets)}

    def included(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self.method.included(features)
