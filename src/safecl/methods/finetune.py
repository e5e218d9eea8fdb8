"""Sequential fine-tuning: train on each session in turn. It shows how much there is to forget."""

from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.heads.cosine import CosineHead
from safecl.learner import Learner
from safecl.methods.finetune_settings import FinetuneSettings
from safecl.methods.method import Batch, Fit, Method
from safecl.streams.stream import Session


class Finetune(Method):
    """One PET and one cosine head, tuned on every session without anything that protects earlier ones."""

    outputs = ("finetune",)

    def __init__(self, backbone: Backbone, settings: FinetuneSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.learner = Learner(backbone, settings.pet, seed)
        self.head = CosineHead(backbone.width, settings.scale)
        self.to(backbone.device)

    def learn(self, session: Session, fit: Fit) -> None:
        targets, features = fit.features(session, self.learner)
        self.head.observe(features, targets)
        self.head.grow(self.head.centroids()[self.head.classes :])
        fit("finetune", nn.ModuleList([self.learner, self.head]), session, self.loss)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        return {"cls": F.cross_entropy(self.head(batch.features(self.learner)), batch.targets)}

    def embed(self, images: Tensor) -> dict[str, Tensor]:
        return {"learner": self.learner.features(images)}

    def answer(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {"finetune": self.head(features["learner"])}
