"""SLCA: tune the whole network at a hundredth of the head's rate; then realign the head with class Gaussians."""

from collections.abc import Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.heads.gaussians import ClassGaussians
from safecl.heads.linear import LinearHead
from safecl.learner import Learner
from safecl.methods.method import Batch, Fit, Group, Method, Recipe
from safecl.methods.slca_settings import SlcaSettings
from safecl.randomness import generator
from safecl.streams.stream import Session


class SLCA(Method):
    """``head`` is trained on its session's classes alone; ``aligned``, its realigned copy, is what answers.

    A session may bring known classes again: the blocks of those classes are trained too, and their Gaussians take the
    new features in.
    """

    outputs = ("slca",)
    settings: SlcaSettings

    def __init__(self, backbone: Backbone, settings: SlcaSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.learner = Learner(backbone, settings.pet, seed)
        self.head, self.aligned = LinearHead(backbone.width), LinearHead(backbone.width)
        self.gaussians = ClassGaussians(backbone.width)
        self.to(backbone.device)

    def learn(self, session: Session, fit: Fit) -> None:
        self.head.grow(len(self.classes) - self.head.classes, generator(self.seed, "head", self.head.classes))
        current = sorted(self.classes.index(label) for label in session.classes)
        self.head.train_only({self.head.block_of(index) for index in current})
        slow = Group(list(self.learner.parameters()), rate=self.settings.slow_rate)
        loss = partial(self.loss, torch.tensor(current, device=self.backbone.device))
        fit("slca", nn.ModuleList([self.learner, self.head]), session, loss, groups=[slow])
        targets, features = fit.features(session, self.learner)
        self.gaussians.add(features, targets)
        self.aligned.load_state_dict(self.head.state_dict())
        if self.sessions:
            self.align(fit)

    def loss(self, current: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy over the classes of this session, ``current`` (sorted), alone."""
        logits = self.head(batch.features(self.learner))[:, current]
        return {"cls": F.cross_entropy(logits, torch.searchsorted(current, batch.targets))}

    def align(self, fit: Fit) -> None:
        """Train ``aligned`` on features drawn from N(κ_c μ_c, Σ_c), κ_c = 0.9 + 0.1 · (task(c) + 1) / t."""
        s, head = self.settings, self.aligned.requires_grad_(True)
        tasks = torch.tensor([head.block_of(index) for index in range(head.classes)])
        kappa = 0.9 + 0.1 * (tasks + 1) / len(head.sizes)
        recipe = Recipe(epochs=s.align_epochs, batch_size=s.align_samples, lr=s.align_lr, every="epoch")
        draw = partial(self.gaussians.sample, s.align_samples, scale=kappa, ridge=s.spread)
        fit("align", head, draw, self.align_loss, recipe=recipe)

    def align_loss(self, batch: Batch) -> dict[str, Tensor]:
        """CE(z / (n̄ τ)): n̄ is the mean norm of the blocks of a feature's logits."""
        logits = self.aligned(batch.inputs)
        norms = [block.norm(dim=1) for block in logits.split(self.aligned.sizes, dim=1)]
        scale = torch.stack(norms).mean(dim=0) * self.settings.temperature
        return {"cls": F.cross_entropy(logits / scale[:, None], batch.targets)}

    def embed(self, images: Tensor) -> dict[str, Tensor]:
        return {"learner": self.learner.features(images)}

    def answer(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {"slca": self.aligned(features["learner"])}
