"""SSIAT: one PET tuned in all sessions; class means move with the features, and the head is
retrained on Gaussians.
"""

from functools import partial

import torch
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.heads.gaussians import ClassGaussians
from safecl.heads.linear import LinearHead
from safecl.losses import local_cosface
from safecl.methods.method import Batch, Fit, TunedMethod
from safecl.methods.settings.ssiat import SsiatSettings
from safecl.methods.slca import align
from safecl.methods.tuning import begin
from safecl.randomness import generator
from safecl.streams.stream import Session


class SSIAT(TunedMethod):
    """Nothing holds the PET back: what its drift does to old classes is estimated on the current
    pictures.
    """

    outputs = ("ssiat",)
    settings: SsiatSettings

    def __init__(self, backbone: Backbone, settings: SsiatSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.head = LinearHead(backbone.width, cosine=settings.scale)
        self.gaussians = ClassGaussians(backbone.width)

    def learn(self, session: Session, fit: Fit) -> None:
        s = self.settings
        current = begin(self, self.head, session)
        before = fit.features(session, self.learner)[1] if self.sessions else None
        self.adapt(session, current, fit)
        targets, features = fit.features(session, self.learner)
        if before is not None:
            after = features
            if not s.paired:
                order = torch.randperm(
                    len(features), generator=generator(self.seed, "unpaired", self.sessions)
                )
                after = features[order.to(features.device)]
            self.gaussians.shift(drift(self.gaussians.means, before, after, s.drift))
        self.gaussians.add(features, targets)
        if self.sessions:
            align(self.head, self.gaussians, s, fit)

    def adapt(self, session: Session, current: Tensor, fit: Fit) -> None:
        """Tune PET and head on a session with the classes ``current`` (sorted)."""
        fit(
            self.settings.name,
            nn.ModuleList([self.learner, self.head]),
            session,
            partial(self.loss, current),
        )

    def loss(self, current: Tensor, batch: Batch) -> dict[str, Tensor]:
        """CosFace over the classes of this session, ``current`` (sorted), alone."""
        return {"cls": self.cosface(batch.features(self.learner), current, batch)}

    def cosface(self, features: Tensor, current: Tensor, batch: Batch) -> Tensor:
        return local_cosface(
            self.head(features), batch.targets, current, self.settings.scale, self.settings.margin
        )


def drift(means: Tensor, before: Tensor, after: Tensor, width: float) -> Tensor:
    """How far the mean (C, d) of each class moves: (C, d), from features (N, d) before and after
    training.

    Δ_c = Σ_i w_i (e'_i − e_i) / Σ_i w_i with w_i = exp(−‖e_i − μ_c‖² / 2σ²) + 10⁻⁵.
    """
    distances = torch.cdist(means.double(), before.double()).square()
    weights = torch.exp(-distances / (2 * width**2)) + 1e-5
    return (weights @ (after - before).double() / weights.sum(dim=1, keepdim=True)).to(means)
