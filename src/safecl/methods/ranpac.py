"""RanPAC: tune the PET in the first session only; then ridge regression on random features of every
session.
"""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.heads.left_out import LeftOut
from safecl.heads.ridge import RidgeHead
from safecl.learner import Learner
from safecl.methods.experts import Ensemble, Expert
from safecl.methods.method import Fit, Judging
from safecl.methods.settings.ranpac import RanpacSettings
from safecl.methods.tuning import tune
from safecl.streams.stream import Session


class RanPAC(Ensemble):
    """SAFE's baseline: its slow learner without the transfer loss. The head of the first session is
    not kept.
    """

    outputs = ("ranpac",)
    judging: ClassVar = Judging()
    settings: RanpacSettings

    def __init__(self, backbone: Backbone, settings: RanpacSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.learner = Learner(backbone, settings.pet, seed)
        self.ridge = RidgeHead(backbone.widths, settings.ridge, seed, backbone.device)

    def learn(self, session: Session, fit: Fit) -> None:
        if not self.sessions:
            self.read(self.reading(session, fit))
            rate = self.settings.body_rate
            tune(self, self.learner, self.settings.scale, session, fit, rate=rate)
        targets, features = fit.features(session, self.networks["learner"])
        self.add(features, targets, fit)
        self.refresh()

    def add(self, features: Tensor, targets: Tensor, fit: Fit) -> Tensor:
        """Let the head learn features (N, d′) of classes (N,); gives them as kept."""
        return self.experts()["learner"].add(features, targets, fit)

    def experts(self) -> dict[str, Expert]:
        networks = {"learner": self.learner}
        return {"learner": Expert("learner", "ridge", networks, self.ridge, self.ridge.reading)}

    def answer(
        self, features: Mapping[str, Tensor], left_out: LeftOut | None = None
    ) -> dict[str, Tensor]:
        return {self.settings.name: self.experts()["learner"].logits(features, left_out)}
