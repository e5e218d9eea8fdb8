"""APER (ADaM): adapt once in the first session; then prototypes of the PTM's and the adapted features side by side."""

from collections.abc import Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.heads.cosine import CosineHead
from safecl.learner import Learner
from safecl.methods.method import Batch, Fit, Method
from safecl.methods.settings.aper import AperSettings
from safecl.randomness import generator
from safecl.streams.stream import Session


class APER(Method):
    """f(x) = [φ_PTM(x); φ_adapted(x)]; a class is its mean f, compared by cosine over all 2d numbers."""

    outputs = ("aper",)
    anchor = "adapted"
    settings: AperSettings

    def __init__(self, backbone: Backbone, settings: AperSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.adapted = Learner(backbone, settings.pet, seed)
        self.prototypes = CosineHead(2 * backbone.width, scale=1.0, unit=False).requires_grad_(False)
        self.to(backbone.device)

    def learn(self, session: Session, fit: Fit) -> None:
        if not self.sessions and self.adapted.tuning():  # without a PET there is nothing to train
            head = CosineHead(self.backbone.width, self.settings.scale).to(self.backbone.device)
            head.grow_random(len(self.classes), generator(self.seed, "head"))
            fit("aper", nn.ModuleList([self.adapted, head]), session, partial(self.loss, head))
            self.adapted.freeze()
        targets, ptm, adapted = fit.features(session, self.backbone, self.adapted)
        self.prototypes.observe(torch.cat([ptm, adapted], dim=1), targets)
        self.prototypes.imprint()

    def loss(self, head: CosineHead, batch: Batch) -> dict[str, Tensor]:
        return {"cls": F.cross_entropy(head(batch.features(self.adapted)), batch.targets)}

    def embed(self, images: Tensor) -> dict[str, Tensor]:
        return {"backbone": self.backbone.features(images), "adapted": self.adapted.features(images)}

    def answer(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {"aper": self.prototypes(torch.cat([features["backbone"], features["adapted"]], dim=1))}

    def refresh(self) -> None:
        self.prototypes.imprint()
