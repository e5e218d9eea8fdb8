"""Decides: how much a picture looks like those learned, beside RanPAC's logits.
By: the distance from the nearest class mean; means and covariance of the learner's features are
sums, and it is never tuned again.
Worth: see what is unknown in docs/results.md.
"""

from collections.abc import Mapping

from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.heads.gaussians import SharedGaussians
from safecl.heads.left_out import LeftOut
from safecl.heads.nearest import NearestMean
from safecl.methods.method import Fit, Included, More
from safecl.methods.parts import Parts, learned_from
from safecl.methods.ranpac import RanPAC
from safecl.methods.settings.ranpac import RanpacSettings


class ClassMeans(RanPAC):
    """Its answers are RanPAC's."""

    learning = ("gaussians.",)

    def __init__(self, backbone: Backbone, settings: RanpacSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.gaussians = SharedGaussians(backbone.width)
        self.nearest = NearestMean(backbone.width)

    def add(self, features: Tensor, targets: Tensor, fit: Fit) -> Tensor:
        rows = super().add(features, targets, fit)
        self.gaussians.add(self.last(rows), targets)
        return rows

    def refresh(self, more: More | None = None) -> Included:
        included = super().refresh(more)
        self.nearest.follow(self.gaussians)
        return included

    def likeness(
        self, features: Mapping[str, Tensor], left_out: LeftOut | None = None
    ) -> Tensor | None:
        found: Tensor = -self.nearest(self.last(features["learner"]), left_out)
        return found

    def parts(self) -> Parts:
        return learned_from(super().parts(), {"gaussians": ("ridge",)})
