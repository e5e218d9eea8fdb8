"""LoRanPAC: least squares on many random features of every session, by singular vectors of which
some are cut off.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.errors import SafeclError
from safecl.heads.left_out import LeftOut
from safecl.heads.protocol import PerClass, Trained
from safecl.heads.random_features import random_projection
from safecl.heads.tensors import precise
from safecl.methods.method import Fit, Included, Judging, More, TunedMethod
from safecl.methods.parts import Parts, merging
from safecl.methods.settings.loranpac import LoranpacSettings
from safecl.methods.tuning import tune
from safecl.randomness import derive, generator
from safecl.streams.stream import Session

BUFFER = 11_000  # pictures of a session that are decomposed together


class LoRanPAC(Trained, PerClass, TunedMethod):
    """W = U diag(1 / s²) Uᵀ Q with vectors U (E, k), their singular values s and class sums Q (E,
    C) of ReLU(f P).
    """

    outputs = ("loranpac",)
    learning = ("vectors", "values", "count", "sums")
    rows = ("sums", "weight")
    dim = 1
    shaped = ("vectors", "values", "count")

    def __init__(self, backbone: Backbone, settings: LoranpacSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        d = backbone.width
        e = settings.size
        drawn = random_projection(d, e, derive(seed, "projection", d, e), backbone.device)
        self.projection: Tensor = nn.Buffer(drawn, persistent=False)
        self.vectors: Tensor = nn.Buffer(torch.zeros(e, 0))
        self.values: Tensor = nn.Buffer(torch.zeros(0))
        self.count: Tensor = nn.Buffer(torch.zeros((), dtype=torch.int64))
        self.sums: Tensor = nn.Buffer(torch.zeros(e, 0))
        self.weight: Tensor = nn.Buffer(torch.zeros(e, 0))

    def learn(self, session: Session, fit: Fit) -> None:
        if not self.sessions:
            tune(self, self.learner, self.settings.scale, session, fit)
        targets, features = fit.features(session, self.learner)
        order = torch.randperm(
            len(targets), generator=generator(self.seed, "order", self.sessions)
        ).to(targets.device)
        self.sums = F.pad(self.sums, (0, len(self.classes) - self.sums.shape[1]))
        for rows in torch.split(order, BUFFER):
            h = torch.relu(features[rows] @ self.projection).T
            self.sums.index_add_(1, targets[rows], h)
            self.extend(h)
        self.refresh()

    def extend(self, h: Tensor) -> None:
        """Add columns h (E, m) by the vectors of [diag(s), Uᵀh; 0, R], h − U Uᵀh = Q R, and cut off
        what is beyond.
        """
        s = self.settings
        a = self.vectors.T @ h
        self.count = self.count + h.shape[1]
        q, r = torch.linalg.qr(h - self.vectors @ a)
        inner = precise(
            torch.cat([torch.cat([self.values.diag(), a], dim=1), F.pad(r, (len(a), 0))])
        )
        # float64, so that squares lose nothing float32 has
        squares, turn = torch.linalg.eigh(inner @ inner.T)
        rank = min(
            round((1 - s.cut) * int(self.count)), s.rank, round((1 - s.cut) * s.size), len(squares)
        )
        self.values = squares.flip(0)[:rank].clamp(min=0).sqrt().to(h)
        found = torch.linalg.qr(torch.cat([self.vectors, q], dim=1) @ turn.flip(1)[:, :rank].to(h))[
            0
        ]
        # signs are arbitrary: the same everywhere
        self.vectors = found * torch.where(found.sum(dim=0) < 0, -1.0, 1.0)

    def refresh(self, more: More | None = None) -> Included:
        """The weights; a direction that is rounding alone, of less than 10⁻⁶ whatever E is, says
        nothing.
        """
        some = self.values > self.values[:1] * 100 * torch.finfo(self.values.dtype).eps
        inverse = torch.where(some, self.values.square().reciprocal(), 0)
        self.weight = self.vectors @ (inverse[:, None] * (self.vectors.T @ self.sums))
        return Judging().included

    def answer(
        self, features: Mapping[str, Tensor], left_out: LeftOut | None = None
    ) -> dict[str, Tensor]:
        return {"loranpac": torch.relu(features["learner"] @ self.projection) @ self.weight}

    def parts(self) -> Parts:
        return merging(super().parts(), [self.learner], "keep")

    def merge(self, *_: Any) -> None:
        raise SafeclError("merge.cut-off")
