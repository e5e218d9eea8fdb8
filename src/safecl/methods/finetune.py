"""Sequential fine-tuning: train on each session in turn and hope. The measure of how much there is to forget."""

from typing import Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from safecl.backbone import Backbone
from safecl.heads import RidgeSettings
from safecl.learner import Learner
from safecl.methods.method import Fit, Method
from safecl.pet import PetSettings
from safecl.settings import Settings
from safecl.streams.stream import Session


class FinetuneSettings(Settings):
    """Nothing to choose but the initial σ of the cosine head."""

    name: Literal["finetune"] = "finetune"
    scale: float = Field(10.0, gt=0, description="initial σ of the cosine head")


class Finetune(Method):
    """One PET and one cosine head, tuned on every session with nothing to hold on to what was there before."""

    name = "finetune"
    outputs = ("finetune",)

    def __init__(
        self, backbone: Backbone, settings: FinetuneSettings, pet: PetSettings, ridge: RidgeSettings, seed: int = 0
    ) -> None:
        super().__init__(backbone)
        self.learner = Learner(backbone, pet, ridge, settings.scale, seed)

    def learn(self, session: Session, fit: Fit) -> None:
        targets, features = fit.features(session, self.learner)
        self.learner.cosine.observe(features, targets)
        self.learner.cosine.grow(self.learner.cosine.centroids()[self.learner.cosine.classes :])
        fit("finetune", self.learner, session, self.loss)

    def loss(self, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        return {"cls": F.cross_entropy(self.all_logits(images)["finetune"], targets)}

    def all_logits(self, images: Tensor) -> dict[str, Tensor]:
        return {"finetune": self.learner.cosine(self.learner.features(images))}
