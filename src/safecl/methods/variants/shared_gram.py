"""One Gram matrix for both learners, as released: the fast head is solved before the slow
learner's features are added.
"""

from collections.abc import Mapping

from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.heads.left_out import LeftOut
from safecl.methods.method import Fit, Included, Judging, More
from safecl.methods.safe import SAFE
from safecl.methods.settings.safe import SafeSettings
from safecl.methods.slow_fast import Features


class SharedGram(SAFE):
    """The features of session 1 count twice."""

    def __init__(self, backbone: Backbone, settings: SafeSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.ridge_fast.share(self.ridge_slow)

    def add(self, targets: Tensor, features: Mapping[str, Tensor], fit: Fit) -> Features:
        experts = self.experts()
        fast = experts["fast"].add(features["fast"], targets, fit)
        self.ridge_fast.solve()
        return {"slow": experts["slow"].add(features["slow"], targets, fit), "fast": fast}

    def settle(self, learned: int, more: More | None = None) -> Included:
        # of a session that was learned before: both from the same sums
        if learned == self.sessions:
            return super().settle(learned, more)
        self.ridge_slow.solve()
        return Judging().included

    def answer(
        self, features: Mapping[str, Tensor], left_out: LeftOut | None = None
    ) -> dict[str, Tensor]:
        """As released, the fast head answers after session 1."""
        found = super().answer(features, left_out)
        return {**found, "safe": found["fast"]} if self.sessions == 1 else found

    @property
    def judging(self) -> None:
        return None
