"""SLCA: tune the whole network at a hundredth of the head's rate; then realign the head with class Gaussians."""

from collections.abc import Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.heads.gaussians import ClassGaussians
from safecl.heads.linear import LinearHead
from safecl.losses import local_cross_entropy
from safecl.methods.alignment import align
from safecl.methods.method import Batch, Fit, Group, TunedMethod
from safecl.methods.settings.slca import SlcaSettings
from safecl.randomness import generator
from safecl.streams.stream import Session


class SLCA(TunedMethod):
    """``head`` is trained on its session's classes alone; ``aligned``, its realigned copy, is what answers.

    A session may bring known classes again: the blocks of those classes are trained too, and their Gaussians take the
    new features in.
    """

    outputs = ("slca",)
    settings: SlcaSettings

    def __init__(self, backbone: Backbone, settings: SlcaSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.head, self.aligned = LinearHead(backbone.width), LinearHead(backbone.width)
        self.gaussians = ClassGaussians(backbone.width)
        self.to(backbone.device)

    def learn(self, session: Session, fit: Fit) -> None:
        current = self.current(session)
        self.head.begin(current, generator(self.seed, "head", self.head.classes))
        slow = Group(list(self.learner.parameters()), rate=self.settings.slow_rate)
        fit("slca", nn.ModuleList([self.learner, self.head]), session, partial(self.loss, current), groups=[slow])
        targets, features = fit.features(session, self.learner)
        self.gaussians.add(features, targets)
        self.aligned.load_state_dict(self.head.state_dict())
        if self.sessions:
            align(self.aligned, self.gaussians, self.settings, fit, self.align_loss)

    def loss(self, current: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy over the classes of this session, ``current`` (sorted), alone."""
        logits = self.head(batch.features(self.learner))
        return {"cls": local_cross_entropy(logits, batch.targets, current)}

    def align_loss(self, batch: Batch) -> dict[str, Tensor]:
        """CE(z / (n̄ τ)): n̄ is the mean norm of the blocks of a feature's logits."""
        logits = self.aligned(batch.inputs)
        norms = [block.norm(dim=1) for block in logits.split(self.aligned.sizes, dim=1)]
        scale = torch.stack(norms).mean(dim=0) * self.settings.temperature
        return {"cls": F.cross_entropy(logits / scale[:, None], batch.targets)}

    def answer(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {"slca": self.aligned(features["learner"])}
