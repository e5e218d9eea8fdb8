"""SAFE: Slow And Fast parameter-Efficient tuning (NeurIPS 2024). ``SAFE.learn`` is the paper's Algorithm 1."""

from collections.abc import Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor

from safecl.backbone import Backbone
from safecl.heads import RidgeHead, RidgeSettings, aggregate
from safecl.heads.aggregate import Aggregation
from safecl.learner import Learner, random_rows
from safecl.losses import (
    alignment,
    limited,
    covariance_alignment,
    cross_correlation,
    crossing,
    diagonal,
    feature_alignment,
    logit_alignment,
    redundancy,
)
from safecl.losses.crossing import Pooling
from safecl.losses.transfer import Normalisation, Reduction
from safecl.methods.method import Fit, Method
from safecl.pet import PetSettings
from safecl.settings import Settings
from safecl.streams.images import Label
from safecl.streams.stream import Session


class SafeSettings(Settings):
    """Every choice that the paper, its ablations and its released code make; the defaults are ours."""

    name: Literal["safe"] = "safe"
    scale: float = Field(10.0, gt=0, description="initial σ of the cosine heads")
    # Phase 1: what the PTM hands to the slow learner
    transfer: Literal["correlation", "fa", "la", "ssa", "none"] = "correlation"
    transfer_normalisation: Normalisation = "l2"
    transfer_reduction: Reduction = "sum"
    lambda_diag: NonNegativeFloat = Field(0.01, description="weight of L_diag, Eq. (2)")
    lambda_rdn: NonNegativeFloat = Field(1.0, description="weight of L_rdn, Eq. (3)")
    lambda_distil: NonNegativeFloat = Field(1.0, description="weight of FA, LA or SSA, the paper's alternatives")
    transfer_share: float | None = Field(
        0.1, gt=0, description="the transfer gradient is at most this share of that of L_cls; null: no limit"
    )
    slow_rows: Literal["imprint", "keep"] = Field("imprint", description="W_slow after session 1: centroids or as is")
    reset_scale: bool = Field(False, description="set σ back to its initial value after session 1")
    # Phase 2: how the fast learner is guided
    teacher: Literal["none", "ptm", "previous", "slow"] = "slow"
    new_rows: Literal["imprint", "zero"] = Field("imprint", description="rows of new classes in both cosine heads")
    lambda_cross: NonNegativeFloat = Field(1.0, description="weight of L_s↔f, Eq. (7)")
    cross_pooling: Pooling = "two_means"
    lambda_cos: NonNegativeFloat = Field(50.0, description="weight of L_cos, Eq. (6)")
    cos_reduction: Literal["mean", "sum"] = "mean"
    # Inference
    statistics: Literal["separate", "shared"] = Field("separate", description="second-order statistics of the learners")
    aggregation: Aggregation = "entropy"
    gamma: NonNegativeFloat = Field(1.0, description="γ, how much the less certain learner is discounted")
    temperature: PositiveFloat | Literal["learned"] = Field(10.0, description="factor on the ridge logits; learned: σ")


class SAFE(Method):
    """Two learners on one frozen backbone: the slow one is tuned once and kept, the fast one goes on learning."""

    name = "safe"
    outputs = ("slow", "fast", "safe")
    teacher: Learner | None

    def __init__(
        self, backbone: Backbone, settings: SafeSettings, pet: PetSettings, ridge: RidgeSettings, seed: int = 0
    ) -> None:
        super().__init__(backbone)
        self.settings, self.seed = settings, seed
        self.slow = Learner(backbone, pet, ridge, settings.scale, seed)
        self.fast = Learner(backbone, pet, ridge, settings.scale, seed)
        self.ptm = Learner(backbone, PetSettings(kind="none"), ridge, settings.scale, seed)
        self.ptm.freeze()
        if settings.statistics == "shared":
            self.slow.ridge.statistics = self.fast.ridge.statistics
        self.joint = None
        if settings.aggregation == "concat":
            self.joint = RidgeHead(2 * backbone.width, ridge, seed).to(backbone.device)

    def learn(self, session: Session, fit: Fit) -> None:
        """Algorithm 1."""
        if not self.slow.cosine.classes:  # Phase 1: slow learner in session t = 1
            self.slow.cosine.grow(random_rows(len(self.classes), self.backbone.width, self.seed))
            self.appoint_teacher(session, fit)
            fit("slow", self.slow, session, self.slow_loss)
            targets, f_slow = fit.features(session, self.slow)
            self.slow.cosine.observe(f_slow, targets)
            if self.settings.slow_rows == "imprint":
                self.slow.cosine.imprint()
            if self.settings.reset_scale:
                self.slow.cosine.scale.data.fill_(self.settings.scale)
            self.slow.freeze()
            self.fast.load_state_dict(self.slow.state_dict())
            f_fast = f_slow
        else:  # Phase 2: fast learner in session t > 1
            self.known = self.slow.cosine.classes
            targets, f_slow, f_fast = fit.features(session, self.slow, self.fast)
            self.appoint_teacher(session, fit)
            self.expand(self.slow, f_slow, targets)
            self.expand(self.fast, f_fast, targets)
            fit("fast", self.fast, session, self.fast_loss)
            _, f_fast = fit.features(session, self.fast)
        self.fast.remember(f_fast, targets)
        self.slow.remember(f_slow, targets)
        if self.joint is not None:
            self.joint.add(both(f_slow, f_fast), targets)
            self.joint.solve()
        self.teacher = None  # a teacher serves one session and is no part of the state

    def slow_loss(self, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """L_slow of Eq. (5)."""
        s, f = self.settings, self.slow.features(images)
        terms = {"cls": F.cross_entropy(self.slow.cosine(f), targets)}  # Eq. (4)
        if s.transfer == "none":
            return terms
        with torch.no_grad():
            g = self.backbone.features(images)
        if s.transfer == "correlation":
            m = cross_correlation(g, f, s.transfer_normalisation)
            extra = {
                "diag": s.lambda_diag * diagonal(m, s.transfer_reduction),
                "rdn": s.lambda_rdn * redundancy(m, s.transfer_reduction),
            }
        elif s.transfer == "fa":
            extra = {"fa": s.lambda_distil * feature_alignment(g, f)}
        elif s.transfer == "la":
            extra = {"la": s.lambda_distil * logit_alignment(g, f, self.ptm.cosine.weight)}
        else:
            extra = {"ssa": s.lambda_distil * covariance_alignment(g, f)}
        if s.transfer_share is not None and f.requires_grad:
            extra = {key: limited(term, terms["cls"], f, s.transfer_share) for key, term in extra.items()}
        return terms | extra

    def fast_loss(self, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """L_fast of Eq. (8)."""
        s, f = self.settings, self.fast.features(images)
        terms = {"cls": F.cross_entropy(self.fast.cosine(f), targets)}  # Eq. (4)
        if self.teacher is None:
            return terms
        with torch.no_grad():
            g = self.teacher.features(images)
        w_fast, w_slow = self.fast.cosine.weight[: self.known], self.teacher.cosine.weight[: self.known]
        if s.lambda_cross:
            terms["f2s"] = s.lambda_cross * crossing(self.teacher.cosine, f, targets, w_fast, s.cross_pooling)
            terms["s2f"] = s.lambda_cross * crossing(self.fast.cosine, g, targets, w_slow, s.cross_pooling)
        if s.lambda_cos:
            terms["cos"] = s.lambda_cos * alignment(g, f, s.cos_reduction)
        return terms

    def all_logits(self, images: Tensor) -> dict[str, Tensor]:
        """z_slow, z_fast of Eq. (9), and their aggregate of Eq. (11)."""
        s, f_slow, f_fast = self.settings, self.slow.features(images), self.fast.features(images)
        slow, fast = (
            learner.ridge.logits(f) * (learner.cosine.scale if s.temperature == "learned" else s.temperature)
            for learner, f in ((self.slow, f_slow), (self.fast, f_fast))
        )
        if self.joint is not None:
            safe = self.joint.logits(both(f_slow, f_fast))
        else:
            assert s.aggregation != "concat"
            safe = aggregate(slow, fast, s.aggregation, s.gamma)
        return {"slow": slow, "fast": fast, "safe": safe}

    def appoint_teacher(self, session: Session, fit: Fit) -> None:
        """Who guides the fast learner through this session; it, too, gets a row for every class."""
        kind = self.settings.teacher
        if kind == "ptm" or self.settings.transfer == "la":
            self.expand(self.ptm, *reversed(fit.features(session, self.ptm)))
        self.teacher = {"none": None, "ptm": self.ptm, "slow": self.slow, "previous": None}[kind]
        if kind == "previous" and self.fast.cosine.classes:
            self.teacher = self.fast.copy()
            self.expand(self.teacher, *reversed(fit.features(session, self.fast)))
            self.teacher.freeze()

    def expand(self, learner: Learner, features: Tensor, targets: Tensor) -> None:
        """W ∈ R^{d×|Y_1:t−1|} → R^{d×|Y_1:t|}: imprint the classes that ``learner`` has no row for yet."""
        learner.cosine.observe(features, targets)
        rows = learner.cosine.centroids()[learner.cosine.classes :]
        learner.cosine.grow(rows if self.settings.new_rows == "imprint" else torch.zeros_like(rows))
        slow = learner is self.slow and self.settings.slow_rows == self.settings.new_rows == "imprint"
        if slow or learner is self.ptm:
            learner.cosine.imprint()  # a frozen learner can refine its centroids with more pictures of a known class

    def restore(self, state: Mapping[str, Tensor], classes: list[Label]) -> None:
        super().restore(state, classes)
        self.slow.freeze()


def both(slow: Tensor, fast: Tensor) -> Tensor:
    """[φ_slow; φ_fast], each on the unit sphere: (N, 2d)."""
    return torch.cat([F.normalize(slow, dim=1), F.normalize(fast, dim=1)], dim=1)
