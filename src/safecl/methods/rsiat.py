"""RSIAT: SSIAT with features shaped in session 1, and later held to a learned map of those before
the session.
"""

import math
from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import skip_init

from safecl.backbone.backbone import Backbone
from safecl.heads.protocol import Trained
from safecl.learner import Learner
from safecl.losses import pairs
from safecl.methods.method import Batch, Fit, Group
from safecl.methods.settings.rsiat import RsiatSettings
from safecl.methods.ssiat import SSIAT
from safecl.randomness import generator
from safecl.streams.stream import Session

NARROW = 64  # hidden units at both ends of the map


class RSIAT(SSIAT):
    """``map`` goes on learning in every session from the second on; answers do not need it."""

    outputs = ("rsiat",)
    learning = ("map.",)
    settings: RsiatSettings

    def __init__(self, backbone: Backbone, settings: RsiatSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.map = ResidualMap(backbone.width, settings.map_width, generator(seed, "residual map"))

    def adapt(self, session: Session, current: Tensor, fit: Fit) -> None:
        s = self.settings
        recipe = fit.recipe()
        both = [self.learner, self.head]
        if not self.sessions:
            steps = nn.Parameter(torch.zeros((), device=self.backbone.device), requires_grad=False)
            loss = partial(
                self.first_loss, current, steps, math.ceil(len(session.train) / recipe.batch_size)
            )
            # so that the count is saved with a step
            modules = nn.ModuleList([*both, nn.ParameterList([steps])])
            return fit(self.settings.name, modules, session, loss, after_step=lambda: steps.add_(1))
        before = self.learner.copy()
        own = list(self.map.parameters())
        before.freeze()
        old = [c for c in range(self.gaussians.classes) if c not in current]
        loss = partial(self.later_loss, current, before, self.gaussians.means[old])
        groups = [Group(own, s.map_lr / recipe.lr, s.map_weight_decay)]
        return fit(
            self.settings.name, nn.ModuleList([*both, self.map]), session, loss, groups=groups
        )

    def first_loss(
        self, current: Tensor, steps: Tensor, per_epoch: int, batch: Batch
    ) -> dict[str, Tensor]:
        """CosFace, and λ · min(1, e / w) · L_pairs in epoch e, which begins at 0."""
        s = self.settings
        features = batch.features(self.learner)
        weight = s.pairs * (steps.div(per_epoch, rounding_mode="floor") / s.pairs_warmup).clamp(
            max=1
        )
        shaped = weight * pairs(features, batch.targets, s.pairs_far, s.pairs_margin)
        return {"cls": self.cosface(features, current, batch), "pairs": shaped}

    def later_loss(
        self, current: Tensor, before: Learner, means: Tensor, batch: Batch
    ) -> dict[str, Tensor]:
        """CosFace + β ‖f − P(f_old)‖² / d + γ · mean cos(P(μ_c), P(f_old)) over old classes c,
        which trains P alone.
        """
        s = self.settings
        features = batch.features(self.learner)
        old = batch.features(before)
        mapped = self.map(old)
        terms = {
            "cls": self.cosface(features, current, batch),
            "residual": s.residual * F.mse_loss(features, mapped),
        }
        if len(means):
            near, far = (
                F.normalize(rows, dim=1).mean(dim=0) for rows in (mapped, self.map(means.to(old)))
            )
            terms["apart"] = s.apart * near @ far
        return terms


class ResidualMap(Trained, nn.Sequential):
    """P(x) = x + sigmoid(W₄ g(W₃ g(W₂ g(W₁ x)))) with g = GELU: (N, d) → (N, d)."""

    def __init__(self, width: int, middle: int, random: torch.Generator) -> None:
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise((width, NARROW, middle, NARROW, width)):
            layers += [skip_init(nn.Linear, inputs, outputs), nn.GELU()]  # type: ignore[no-untyped-call]
            for parameter in layers[-2].parameters():
                parameter.data.uniform_(-(inputs**-0.5), inputs**-0.5, generator=random)
        super().__init__(*layers[:-1], nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)  # type: ignore[no-any-return, no-untyped-call]
