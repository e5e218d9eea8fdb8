"""TUNA: a PET for each session, of which the surest answers, beside one that is fused from all of
them.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.heads.gaussians import ClassGaussians
from safecl.heads.left_out import LeftOut
from safecl.heads.linear import LinearHead
from safecl.learner import Learner, Tuning
from safecl.losses import local_cosface
from safecl.methods.ensemble import surest
from safecl.methods.experts import Ensemble, Expert
from safecl.methods.method import Batch, Fit, Loss, SessionLearners
from safecl.methods.settings.tuna import TunaSettings
from safecl.methods.slca import align
from safecl.methods.tuning import begin
from safecl.streams.stream import Session


class SpecialistMethod(Ensemble, SessionLearners):
    """One head, retrained on Gaussians: of a class under its own sessions' learners."""

    def __init__(self, backbone: Backbone, settings: Any, seed: int, head: LinearHead) -> None:
        super().__init__(backbone, settings, seed)
        self.head = head
        self.gaussians = ClassGaussians(backbone.width)

    def experts(self) -> dict[str, Expert]:
        """A specialist for each session."""
        names = [f"session {n}" for n in range(len(self.learners))]
        return {
            name: Expert(name, "head", {name: learner}, self.head)
            for name, learner in zip(names, self.learners, strict=True)
        }

    def grow(self) -> Learner:
        """A new learner, which starts as the one before."""
        new = (
            self.learners[-1].copy()
            if len(self.learners)
            else Learner(self.backbone, self.settings.pet, self.seed)
        )
        self.learners.append(new)
        return new

    def specialise(
        self, session: Session, fit: Fit, loss: Loss, **options: Any
    ) -> tuple[Tensor, Tensor]:
        """Train the last learner and the head; gives class indices (N,), and features (N, d) of
        that learner.
        """
        fit(
            self.settings.name,
            nn.ModuleList([self.learners[-1], self.head]),
            session,
            loss,
            **options,
        )
        self.learners[-1].freeze()
        targets, features = fit.features(session, self.learners[-1])
        self.gaussians.add(features, targets)
        if self.sessions:
            align(self.head, self.gaussians, self.settings, fit)
        return targets, features

    def combined(self, how: Callable[[Tensor], Tensor]) -> Tuning:
        """All tunings as one, by a function of the values (S, …) of each name."""
        tunings = [learner.tuning() for learner in self.learners]
        return {
            name: how(torch.stack([each[name] for each in tunings])) for name in (*tunings, {})[0]
        }

    def chosen(self, each: list[Tensor], sessions: Tensor) -> Tensor:
        """Of the logits (N, C) under ``each`` learner those of ``sessions`` (N,): (N, C)."""
        return torch.stack(each).gather(0, sessions[None, :, None].expand(1, *each[0].shape))[0]


class TUNA(SpecialistMethod):
    """``universal``: the learner that is fused, if the settings have one."""

    outputs = ("specific", "universal", "tuna")
    settings: TunaSettings

    def __init__(self, backbone: Backbone, settings: TunaSettings, seed: int = 0) -> None:
        super().__init__(
            backbone, settings, seed, LinearHead(backbone.width, cosine=settings.scale)
        )
        fuses = settings.universal == "fused"
        self.universal = (
            Learner(backbone, settings.pet, seed).requires_grad_(False) if fuses else None
        )

    def learn(self, session: Session, fit: Fit) -> None:
        current = begin(self, self.head, session)
        _ = self.grow()
        self.specialise(session, fit, partial(self.loss, current))
        if self.universal is not None:
            self.universal.pet.load_state_dict(self.combined(fused))

    def loss(self, current: Tensor, batch: Batch) -> dict[str, Tensor]:
        """CosFace over the classes of this session, ``current`` (sorted), alone."""
        s = self.settings
        logits = self.head(batch.features(self.learners[-1]))
        return {"cls": local_cosface(logits, batch.targets, current, s.scale, s.margin)}

    def experts(self) -> dict[str, Expert]:
        """The specialists, and the one that is fused from them."""
        found = super().experts()
        if self.universal is None:
            return found
        networks = {"universal": self.universal}
        universal = Expert("universal", "head", networks, self.head, moves=True)
        return {**found, "universal": universal}

    def answer(
        self, features: Mapping[str, Tensor], left_out: LeftOut | None = None
    ) -> dict[str, Tensor]:
        """log (p_i + p_U), where p_i has the least entropy of all sessions'."""
        said = {name: expert.logits(features) for name, expert in self.experts().items()}
        each = [said[name] for name in super().experts()]
        universal = said.get("universal", each[-1]).log_softmax(dim=1)
        specific = self.chosen(each, surest(each)).log_softmax(dim=1)
        return {
            "specific": specific,
            "universal": universal,
            "tuna": torch.logaddexp(specific, universal),
        }


def fused(values: Tensor) -> Tensor:
    """(S, …) → (…): the largest of the values with the sign of their sum, or 0; a sum of 0 is
    negative.
    """
    sign = torch.where(values.sum(dim=0) > 0, 1.0, -1.0).to(values)
    return sign * (values * sign).amax(dim=0).clamp(min=0)
