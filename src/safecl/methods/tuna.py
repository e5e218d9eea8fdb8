"""TUNA: a PET for each session, of which the surest answers, beside one that is fused from all of them."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.heads.aggregate import entropy
from safecl.heads.gaussians import ClassGaussians
from safecl.heads.linear import LinearHead
from safecl.learner import Learner, Tuning
from safecl.losses import local_cosface
from safecl.methods.method import Batch, Fit, Loss, SessionLearners
from safecl.methods.settings.tuna import TunaSettings
from safecl.methods.slca import align
from safecl.streams.stream import Session


class SpecialistMethod(SessionLearners):
    """One head, retrained on Gaussians: of a class under its own sessions' learners."""

    def __init__(self, backbone: Backbone, settings: Any, seed: int, head: LinearHead) -> None:
        super().__init__(backbone, settings, seed)
        self.head, self.gaussians = head, ClassGaussians(backbone.width)

    def grow(self) -> Learner:
        """A new learner, which starts as the one before."""
        new = self.learners[-1].copy() if len(self.learners) else Learner(self.backbone, self.settings.pet, self.seed)
        self.learners.append(new)
        return new

    def specialise(self, session: Session, fit: Fit, loss: Loss, **options: Any) -> tuple[Tensor, Tensor]:
        """Train the last learner and the head; gives class indices (N,), and features (N, d) of that learner."""
        fit(self.name, nn.ModuleList([self.learners[-1], self.head]), session, loss, **options)
        self.learners[-1].freeze()
        targets, features = fit.features(session, self.learners[-1])
        self.gaussians.add(features, targets)
        if self.sessions:
            align(self.head, self.gaussians, self.settings, fit)
        return targets, features

    def combined(self, how: Callable[[Tensor], Tensor]) -> Tuning:
        """All tunings as one, by a function of the values (S, …) of each name."""
        tunings = [learner.tuning() for learner in self.learners]
        return {name: how(torch.stack([each[name] for each in tunings])) for name in (*tunings, {})[0]}

    def chosen(self, each: list[Tensor], sessions: Tensor) -> Tensor:
        """Of the logits (N, C) under ``each`` learner those of ``sessions`` (N,): (N, C)."""
        return torch.stack(each).gather(0, sessions[None, :, None].expand(1, *each[0].shape))[0]


class TUNA(SpecialistMethod):
    """``universal``: the learner that is fused, if the settings have one."""

    outputs = ("specific", "universal", "tuna")
    settings: TunaSettings

    def __init__(self, backbone: Backbone, settings: TunaSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed, LinearHead(backbone.width, cosine=settings.scale))
        fuses = settings.universal == "fused"
        self.universal = Learner(backbone, settings.pet, seed).requires_grad_(False) if fuses else None

    def learn(self, session: Session, fit: Fit) -> None:
        current, _ = self.begin(self.head, session), self.grow()
        self.specialise(session, fit, partial(self.loss, current))
        if self.universal is not None:
            self.universal.pet.load_state_dict(self.combined(fused))

    def loss(self, current: Tensor, batch: Batch) -> dict[str, Tensor]:
        """CosFace over the classes of this session, ``current`` (sorted), alone."""
        s, logits = self.settings, self.head(batch.features(self.learners[-1]))
        return {"cls": local_cosface(logits, batch.targets, current, s.scale, s.margin)}

    def embed(self, images: Tensor) -> dict[str, Tensor]:
        fused = {} if self.universal is None else {"universal": self.universal.features(images)}
        return {**super().embed(images), **fused}

    def answer(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """log (p_i + p_U), where p_i has the least entropy of all sessions'."""
        each = [self.head(features[name]) for name in self.networks]
        universal = (each[-1] if self.universal is None else self.head(features["universal"])).log_softmax(dim=1)
        surest = torch.stack([entropy(z) for z in each]).argmin(dim=0)
        specific = self.chosen(each, surest).log_softmax(dim=1)
        return {"specific": specific, "universal": universal, "tuna": torch.logaddexp(specific, universal)}


def fused(values: Tensor) -> Tensor:
    """(S, …) → (…): the largest of the values with the sign of their sum, or 0; a sum of 0 is negative."""
    sign = torch.where(values.sum(dim=0) > 0, 1.0, -1.0).to(values)
    return sign * (values * sign).amax(dim=0).clamp(min=0)
