"""LAE: an online PET that is trained, an offline one that is its moving average, and the surer of
both answers.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.heads.left_out import LeftOut
from safecl.heads.linear import LinearHead
from safecl.learner import Learner
from safecl.methods.experts import Ensemble, Expert
from safecl.methods.method import Fit, TunedMethod
from safecl.methods.settings.lae import LaeSettings
from safecl.methods.tuning import begin
from safecl.streams.stream import Session


class LAE(Ensemble, TunedMethod):
    """``learner`` is the online one. Both share a head. The average starts after session 1, and
    moves with every step.

    In later sessions the head is trained alone first; the phase after it continues with the
    optimiser's state.
    """

    outputs = ("online", "offline", "lae")
    settings: LaeSettings

    def __init__(self, backbone: Backbone, settings: LaeSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.offline = Learner(backbone, settings.pet, seed).requires_grad_(False)
        self.head = LinearHead(backbone.width)

    def learn(self, session: Session, fit: Fit) -> None:
        recipe = replace(fit.recipe(), continues=True)
        loss = partial(self.loss, begin(self, self.head, session))
        if not self.sessions:
            fit("lae", nn.ModuleList([self.learner, self.head]), session, loss)
            self.offline.load_state_dict(self.learner.state_dict())
            return
        alone = min(round(self.settings.frozen * recipe.epochs), recipe.epochs - 1)
        if alone:
            self.learner.requires_grad_(False)
            first = replace(recipe, epochs=alone)
            fit(
                "head",
                nn.ModuleList([self.offline, self.head]),
                session,
                loss,
                recipe=first,
                after_step=self.average,
            )
            self.learner.requires_grad_(True)
        rest = replace(recipe, epochs=recipe.epochs - alone)
        everything = nn.ModuleList([self.learner, self.offline, self.head])
        fit("lae", everything, session, loss, recipe=rest, after_step=self.average)

    @torch.no_grad()
    def average(self) -> None:
        """offline ← decay · offline + (1 − decay) · online."""
        for mine, theirs in zip(self.offline.parameters(), self.learner.parameters(), strict=True):
            mine.lerp_(theirs, 1 - self.settings.decay)

    def experts(self) -> dict[str, Expert]:
        learners = {"online": self.learner, "offline": self.offline}
        return {
            name: Expert(name, "head", {name: learner}, self.head, moves=True)
            for name, learner in learners.items()
        }

    def answer(
        self, features: Mapping[str, Tensor], left_out: LeftOut | None = None
    ) -> dict[str, Tensor]:
        """The logarithm of the larger probability of each class."""
        each = {
            name: expert.logits(features).log_softmax(dim=1)
            for name, expert in self.experts().items()
        }
        return {**each, "lae": torch.maximum(*each.values())}
