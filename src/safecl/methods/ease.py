"""EASE: a PET for each session; class means in all subspaces, where missing ones are made from
similar classes.
"""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.heads.cosine import CosineHead
from safecl.heads.left_out import LeftOut
from safecl.heads.protocol import PerClass, Trained
from safecl.learner import Learner
from safecl.methods.method import Fit, Network, SessionLearners
from safecl.methods.settings.ease import EaseSettings
from safecl.methods.tuning import current_classes, tune
from safecl.randomness import derive
from safecl.streams.stream import Session


class EASE(Trained, PerClass, SessionLearners):
    """A session's pictures go through its own and all earlier PETs; through later ones they cannot.

    ``sums`` (S, C, d) and ``counts`` (S, C) are those of the features of every class in every
    subspace, ``brought`` (T, C) which sessions brought a class: their subspaces are its own, with
    equal weights.
    """

    outputs = ("ease",)
    rows = ("sums", "counts", "brought")
    dim = 1
    settings: EaseSettings

    def __init__(self, backbone: Backbone, settings: EaseSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.sums: Tensor = nn.Buffer(torch.zeros(0, 0, backbone.width))
        self.counts: Tensor = nn.Buffer(torch.zeros(0, 0))
        self.brought: Tensor = nn.Buffer(torch.zeros(0, 0, dtype=torch.bool))
        bare = CosineHead(backbone.width, scale=1.0, unit=False).requires_grad_(False)
        self.ptm = bare if settings.beta else None  # class means of the bare features

    def learn(self, session: Session, fit: Fit) -> None:
        new = Learner(
            self.backbone, self.settings.pet, derive(self.seed, "subspace", self.sessions)
        )
        self.learners.append(new)
        tune(self, new, self.settings.scale, session, fit, self.sessions)
        targets, *features = fit.features(session, *self.networks.values())
        if self.ptm is not None:
            self.ptm.observe(features.pop(), targets)
            self.ptm.imprint()
        self.observe(torch.stack(features), targets, current_classes(self, session))

    def observe(self, features: Tensor, targets: Tensor, current: Tensor) -> None:
        """Add a session's features (S, N, d) in every subspace, with class indices (N,), and note
        its classes.
        """
        more = len(features) - len(self.sums), len(self.classes) - self.sums.shape[1]
        self.sums = F.pad(self.sums, (0, 0, 0, more[1], 0, more[0])).index_add(1, targets, features)
        ones = torch.ones_like(features[:, :, 0])
        self.counts = F.pad(self.counts, (0, more[1], 0, more[0])).index_add(1, targets, ones)
        self.brought = F.pad(self.brought, (0, more[1], 0, 1))
        self.brought[-1, current] = True

    @property
    def prototypes(self) -> Tensor:
        """(S, C, d): class means, and where a subspace has none of a class, one made from those it
        has.
        """
        return complete(self.sums / self.counts.clamp(min=1)[:, :, None], self.counts > 0)

    def subspace_weights(self) -> Tensor:
        """(S, C): those of a class's own subspaces sum to 1, those of the others to α."""
        own = self.brought.to(self.counts)
        others = (~self.brought).to(self.counts)
        return own / own.sum(dim=0) + self.settings.alpha * others / others.sum(dim=0).clamp(min=1)

    @property
    def networks(self) -> dict[str, Network]:
        return super().networks | ({} if self.ptm is None else {"backbone": self.backbone})

    def answer(
        self, features: Mapping[str, Tensor], left_out: LeftOut | None = None
    ) -> dict[str, Tensor]:
        """z_c = Σ_n w_nc cos(f_n, W_nc), and β cos under the PTM. Features of 0 say nothing."""
        own = torch.stack([features[name] for name in super().networks])
        cosines = F.normalize(own, dim=2) @ F.normalize(self.prototypes, dim=2).transpose(1, 2)
        logits = (cosines * self.subspace_weights()[:, None]).sum(dim=0)
        if self.ptm is not None:
            logits = logits + self.settings.beta * self.ptm(features["backbone"])
        return {"ease": logits}


def complete(means: Tensor, known: Tensor) -> Tensor:
    """``means`` (S, C, d) with those filled in that are not ``known`` (S, C).

    A class o that subspace n does not know is compared, in the latest subspace b that knows it,
    with the classes j that n knows: W_no = Σ_j softmax_j(cos(W_bo, W_bj)) W_nj. Earlier subspaces
    know all that a later one does.
    """
    last = known.long().cumsum(dim=0).argmax(dim=0)  # the latest subspace that knows a class: (C,)
    unit = F.normalize(means, dim=2)
    # of o, in its own b, with every j: (C, C)
    similar = (unit @ unit.mT)[last, torch.arange(len(last)).to(last)]
    shares = torch.where(known[:, None], similar, torch.finfo(means.dtype).min).softmax(dim=2)
    return torch.where(known[:, :, None], means, shares @ means)
