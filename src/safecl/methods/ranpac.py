"""RanPAC: tune the PET in the first session only; then ridge regression on random features of every session."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.heads.ridge import RidgeHead
from safecl.learner import Reader
from safecl.methods.method import Fit, Network, TunedMethod
from safecl.methods.reading import choose_reading
from safecl.methods.settings.ranpac import RanpacSettings
from safecl.streams.stream import Session


class RanPAC(TunedMethod):
    """SAFE's baseline: its slow learner without the transfer loss. The head of the first session is not kept."""

    outputs = ("ranpac",)
    anchor = "learner"
    heads: ClassVar = {"learner": "ridge"}
    reads: ClassVar = {"ridge": ("learner",)}
    leaves_out = True
    settings: RanpacSettings

    def __init__(self, backbone: Backbone, settings: RanpacSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.ridge = RidgeHead(backbone.width, settings.ridge, seed, backbone.device)

    def learn(self, session: Session, fit: Fit) -> None:
        if not self.sessions:
            choose_reading(self.ridge, self.backbone, session, fit)
            self.tune(self.learner, self.settings.scale, session, fit, rate=self.settings.body_rate)
        targets, features = fit.features(session, self.networks["learner"])
        self.ridge.add(features, targets)
        self.ridge.solve()

    @property
    def networks(self) -> dict[str, Network]:
        return {"learner": Reader(self.learner, self.ridge.reading)}

    def embed(self, images: Tensor) -> dict[str, Tensor]:
        return {"learner": self.learner.read(images, self.ridge.reading.once)}

    def answer(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {self.name: self.ridge.logits(features["learner"])}
