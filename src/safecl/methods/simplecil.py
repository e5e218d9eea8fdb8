"""SimpleCIL (nearest class mean): the mean feature of every class under the frozen backbone,
compared by cosine.
"""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.heads.cosine import CosineHead
from safecl.heads.left_out import LeftOut
from safecl.learner import Learner
from safecl.methods.experts import Ensemble, Expert
from safecl.methods.method import Fit, Included, Judging, More
from safecl.methods.settings.base import MethodSettings
from safecl.streams.stream import Session


class SimpleCIL(Ensemble):
    """Nothing is trained. More pictures of a known class refine its mean."""

    outputs = ("simplecil",)
    judging: ClassVar = Judging()

    def __init__(
        self, backbone: Backbone, settings: MethodSettings, seed: int = 0, networks: int = 1
    ) -> None:
        super().__init__(backbone, settings, seed)
        width = networks * backbone.width
        self.prototypes = CosineHead(width, scale=1.0, unit=False).requires_grad_(False)

    def compared(self) -> dict[str, Learner | Backbone]:
        """A class is the mean of their features side by side."""
        return {"backbone": self.backbone}

    def experts(self) -> dict[str, Expert]:
        means = Expert("means", "prototypes", self.compared(), self.prototypes)
        return {"means": means}

    def learn(self, session: Session, fit: Fit) -> None:
        networks = self.networks
        targets, *found = fit.features(session, *networks.values())
        features = dict(zip(networks, found, strict=True))
        self.prototypes.observe(self.experts()["means"].of(features), targets)
        self.prototypes.imprint()

    def answer(
        self, features: Mapping[str, Tensor], left_out: LeftOut | None = None
    ) -> dict[str, Tensor]:
        return {self.settings.name: self.experts()["means"].logits(features, left_out)}

    def refresh(self, more: More | None = None) -> Included:
        self.prototypes.imprint()
        return Judging().included
