"""RanPAC: tune the PET in the first session only; then ridge regression on random features of every session."""

from collections.abc import Mapping
from typing import Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from safecl.backbone import Backbone
from safecl.heads import RidgeSettings
from safecl.learner import Learner
from safecl.methods.method import Fit, Method
from safecl.pet import PetSettings
from safecl.randomness import generator
from safecl.settings import Settings
from safecl.streams.images import Label
from safecl.streams.stream import Session


class RanpacSettings(Settings):
    """RanPAC has nothing to choose but the PET, the projection and the initial σ."""

    name: Literal["ranpac"] = "ranpac"
    scale: float = Field(10.0, gt=0, description="initial σ of the cosine head (1 in RanPAC's own code, 10 in SAFE's)")


class RanPAC(Method):
    """SAFE's baseline: a slow learner without a transfer loss, and nothing else."""

    name = "ranpac"
    outputs = ("ranpac",)

    def __init__(
        self, backbone: Backbone, settings: RanpacSettings, pet: PetSettings, ridge: RidgeSettings, seed: int = 0
    ) -> None:
        super().__init__(backbone)
        self.seed = seed
        self.learner = Learner(backbone, pet, ridge, settings.scale, seed)

    def learn(self, session: Session, fit: Fit) -> None:
        if not self.learner.cosine.classes:
            self.learner.cosine.grow_random(len(self.classes), generator(self.seed, "head"))
            fit("ranpac", self.learner, session, self.loss)
            self.learner.freeze()
        targets, features = fit.features(session, self.learner)
        self.learner.remember(features, targets)

    def loss(self, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        return {"cls": F.cross_entropy(self.learner.cosine(self.learner.features(images)), targets)}

    def all_logits(self, images: Tensor) -> dict[str, Tensor]:
        return {"ranpac": self.learner.logits(images)}

    def restore(self, state: Mapping[str, Tensor], classes: list[Label]) -> None:
        super().restore(state, classes)
        self.learner.freeze()
