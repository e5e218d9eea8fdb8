"""RanPAC: tune the PET in the first session only; then ridge regression on random features of every session."""

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.heads.cosine import CosineHead
from safecl.heads.ridge import RidgeHead
from safecl.methods.method import Batch, Fit, TunedMethod
from safecl.methods.settings.ranpac import RanpacSettings
from safecl.randomness import generator
from safecl.streams.stream import Session


class RanPAC(TunedMethod):
    """SAFE's baseline: its slow learner without the transfer loss. The head of the first session is not kept."""

    outputs = ("ranpac",)
    anchor = "learner"
    heads: ClassVar = {"learner": "ridge"}
    settings: RanpacSettings

    def __init__(self, backbone: Backbone, settings: RanpacSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.ridge = RidgeHead(backbone.width, settings.ridge, seed, backbone.device)
        self.to(backbone.device)

    def learn(self, session: Session, fit: Fit) -> None:
        if not self.sessions and self.learner.tuning():  # without a PET there is nothing to train
            head = CosineHead(self.backbone.width, self.settings.scale).to(self.backbone.device)
            head.grow_random(len(self.classes), generator(self.seed, "head"))
            fit("ranpac", nn.ModuleList([self.learner, head]), session, partial(self.loss, head))
            self.learner.freeze()
        targets, features = fit.features(session, self.learner)
        self.ridge.add(features, targets)
        self.ridge.solve()

    def loss(self, head: CosineHead, batch: Batch) -> dict[str, Tensor]:
        return {"cls": F.cross_entropy(head(batch.features(self.learner)), batch.targets)}

    def answer(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {"ranpac": self.ridge.logits(features["learner"])}
