"""Decides: how much a picture looks like those learned, beside its logits.
By: the distance from the nearest class mean, of who answers beside the fast learner.
Worth: see what is unknown in docs/results.md.
"""

from collections.abc import Mapping

from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.heads.left_out import LeftOut
from safecl.heads.nearest import NearestMean
from safecl.methods.beyond.following import Follows
from safecl.methods.method import Included, More
from safecl.methods.settings.safe import SafeSettings


class Likeness(Follows):
    """Means and covariance are those that following keeps of frozen networks."""

    def __init__(self, backbone: Backbone, settings: SafeSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.nearest = NearestMean(backbone.width)

    def settle(self, learned: int, more: More | None = None) -> Included:
        included = super().settle(learned, more)
        memory = self.following
        self.nearest.follow(memory.untuned if self.beside(learned) == "untuned" else memory.kept)
        return included

    def likeness(
        self, features: Mapping[str, Tensor], left_out: LeftOut | None = None
    ) -> Tensor | None:
        if "slow" not in self.outputs:  # where the fast learner is asked alone
            return None
        own = self.last(features[self.beside(self.sessions)])
        found: Tensor = -self.nearest(own, left_out)
        return found
