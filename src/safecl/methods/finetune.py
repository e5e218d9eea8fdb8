"""Sequential fine-tuning: train on each session in turn. It shows how much there is to forget."""

from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.heads.cosine import CosineHead
from safecl.heads.linear import LinearHead
from safecl.methods.method import Batch, Fit, TunedMethod
from safecl.methods.settings.finetune import FinetuneSettings
from safecl.methods.tuning import begin, current_classes
from safecl.streams.stream import Session


class Finetune(TunedMethod):
    """One PET and one head, tuned on every session without anything that protects earlier ones."""

    outputs = ("finetune",)
    settings: FinetuneSettings

    def __init__(self, backbone: Backbone, settings: FinetuneSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        cosine = settings.head == "cosine"
        self.head = (
            CosineHead(backbone.width, settings.scale) if cosine else LinearHead(backbone.width)
        )

    def learn(self, session: Session, fit: Fit) -> None:
        current = current_classes(self, session)
        if isinstance(self.head, LinearHead):
            begin(self, self.head, session)
            if self.settings.softmax == "global":
                self.head.requires_grad_(True)
        else:
            targets, features = fit.features(session, self.learner)
            self.head.observe(features, targets)
            self.head.grow(self.head.centroids()[self.head.classes :])
        fit(
            "finetune",
            nn.ModuleList([self.learner, self.head]),
            session,
            partial(self.loss, current),
        )

    def loss(self, current: Tensor, batch: Batch) -> dict[str, Tensor]:
        if self.settings.softmax == "local":
            return super().loss(current, batch)
        return {"cls": F.cross_entropy(self.head(batch.features(self.learner)), batch.targets)}
