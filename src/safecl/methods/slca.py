"""SLCA: tune the whole network at a hundredth of the head's rate; then realign the head with class
Gaussians.
"""

from collections.abc import Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.heads.gaussians import ClassGaussians
from safecl.heads.left_out import LeftOut
from safecl.heads.linear import LinearHead
from safecl.methods.method import Batch, Fit, Group, Loss, Recipe, TunedMethod
from safecl.methods.settings.base import AlignedSettings
from safecl.methods.settings.slca import SlcaSettings
from safecl.methods.tuning import begin
from safecl.streams.stream import Session


class SLCA(TunedMethod):
    """``head`` is trained on its session's classes alone; ``aligned``, its realigned copy, is what
    answers.
    """

    outputs = ("slca",)
    settings: SlcaSettings

    def __init__(self, backbone: Backbone, settings: SlcaSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.head = LinearHead(backbone.width)
        self.aligned = LinearHead(backbone.width)
        self.gaussians = ClassGaussians(backbone.width)

    def learn(self, session: Session, fit: Fit) -> None:
        current = begin(self, self.head, session)
        slow = Group(list(self.learner.parameters()), rate=self.settings.slow_rate)
        fit(
            "slca",
            nn.ModuleList([self.learner, self.head]),
            session,
            partial(self.loss, current),
            groups=[slow],
        )
        targets, features = fit.features(session, self.learner)
        self.gaussians.add(features, targets)
        self.aligned.load_state_dict(self.head.state_dict())
        if self.sessions:
            align(self.aligned, self.gaussians, self.settings, fit, self.align_loss)

    def align_loss(self, batch: Batch) -> dict[str, Tensor]:
        """CE(z / (n̄ τ)): n̄ is the mean norm of the blocks of a feature's logits."""
        logits = self.aligned(batch.inputs)
        norms = [block.norm(dim=1) for block in logits.split(self.aligned.sizes, dim=1)]
        scale = torch.stack(norms).mean(dim=0) * self.settings.temperature
        return {"cls": F.cross_entropy(logits / scale[:, None], batch.targets)}

    def answer(
        self, features: Mapping[str, Tensor], left_out: LeftOut | None = None
    ) -> dict[str, Tensor]:
        return {"slca": self.aligned(features["learner"])}


def align(
    head: LinearHead,
    gaussians: ClassGaussians,
    settings: AlignedSettings,
    fit: Fit,
    loss: Loss | None = None,
) -> None:
    """Train all of ``head`` on features drawn from N(κ_c μ_c, Σ_c), κ_c = 1, or 0.9 + 0.1 ·
    (task(c) + 1) / t.
    """
    s = settings
    head.requires_grad_(True)
    tasks = torch.tensor([head.block_of(index) for index in range(head.classes)])
    kappa = 0.9 + 0.1 * (tasks + 1) / len(head.sizes) if s.scaled else None
    decay = fit.recipe().weight_decay
    recipe = Recipe(
        epochs=s.align_epochs,
        batch_size=s.align_samples,
        lr=s.align_lr,
        weight_decay=decay,
        every="epoch",
    )
    draw = partial(gaussians.sample, s.align_samples, scale=kappa, ridge=s.spread)
    plain = loss or (lambda batch: {"cls": F.cross_entropy(head(batch.inputs), batch.targets)})
    fit("align", head, draw, plain, recipe=recipe)
