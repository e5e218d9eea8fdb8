"""SAFE: Slow And Fast parameter-Efficient tuning (NeurIPS 2024). ``SAFE.learn`` is the paper's Algorithm 1."""

from collections.abc import Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from safecl import losses
from safecl.backbone import Backbone
from safecl.heads import RidgeHead, RidgeSettings, aggregate
from safecl.learner import Learner, random_rows
from safecl.methods.method import Fit, Method
from safecl.methods.pilot import SHARES, choose_tuning, helped
from safecl.methods.safe_settings import SafeSettings
from safecl.pet import NoPetSettings, PetSettings
from safecl.streams.images import Label
from safecl.streams.stream import Session


class SAFE(Method):
    """Two learners on one frozen backbone: the slow one is tuned once and kept, the fast one goes on learning."""

    name = "safe"
    outputs = ("slow", "fast", "safe")
    teacher: Learner | None
    free: Tensor

    def __init__(
        self, backbone: Backbone, settings: SafeSettings, pet: PetSettings, ridge: RidgeSettings, seed: int = 0
    ) -> None:
        super().__init__(backbone)
        self.settings, self.seed = settings, seed
        self.slow = Learner(backbone, pet, ridge, settings.scale, seed)
        self.fast = Learner(backbone, pet, ridge, settings.scale, seed)
        self.ptm = Learner(backbone, NoPetSettings(), ridge, settings.scale, seed)
        self.ptm.freeze()
        self.register_buffer("free", torch.tensor(False))  # of L_cos
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
            (transfer, share), start = self.run_pilots(session, fit), self.slow.tuning()
            fit("slow", self.slow, session, partial(self.slow_loss, transfer, self.slow))
            self.slow.interpolate(start, self.slow.tuning(), share)
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
            start, lambda_cos = self.fast.tuning(), self.weigh_alignment(f_slow, targets, session, fit)
            fit("fast", self.fast, session, partial(self.fast_loss, lambda_cos))
            f_fast = self.stay_near(f_slow, start, session, fit)
        self.fast.remember(f_fast, targets)
        self.slow.remember(f_slow, targets)
        if self.joint is not None:
            self.joint.add(both(f_slow, f_fast), targets)
            self.joint.solve()
        self.teacher = None  # a teacher serves one session and is no part of the state

    def slow_loss(self, transfer: bool, slow: Learner, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """L_slow of Eq. (5), with or without what is transferred from the PTM."""
        s, f = self.settings, slow.features(images)
        terms = {"cls": F.cross_entropy(slow.cosine(f), targets)}  # Eq. (4)
        if not transfer:
            return terms
        with torch.no_grad():
            g = self.backbone.features(images)
        if s.transfer == "correlation":
            m = losses.cross_correlation(g, f, s.transfer_normalisation)
            extra = {
                "diag": s.lambda_diag * losses.diagonal(m, s.transfer_reduction),
                "rdn": s.lambda_rdn * losses.redundancy(m, s.transfer_reduction),
            }
        elif s.transfer == "fa":
            extra = {"fa": s.lambda_distil * losses.feature_alignment(g, f)}
        elif s.transfer == "la":
            extra = {"la": s.lambda_distil * losses.logit_alignment(g, f, self.ptm.cosine.weight)}
        else:
            assert s.transfer == "ssa"
            extra = {"ssa": s.lambda_distil * losses.covariance_alignment(g, f)}
        if s.transfer_share is not None and f.requires_grad:
            extra = {key: losses.limited(term, terms["cls"], f, s.transfer_share) for key, term in extra.items()}
        return terms | extra

    def fast_loss(self, lambda_cos: float, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """L_fast of Eq. (8)."""
        s, f = self.settings, self.fast.features(images)
        terms = {"cls": F.cross_entropy(self.fast.cosine(f), targets)}  # Eq. (4)
        if self.teacher is None:
            return terms
        with torch.no_grad():
            g = self.teacher.features(images)
        w_fast, w_slow = self.fast.cosine.weight[: self.known], self.teacher.cosine.weight[: self.known]
        if s.lambda_cross:
            terms["f2s"] = s.lambda_cross * losses.crossing(self.teacher.cosine, f, targets, w_fast, s.cross_pooling)
            terms["s2f"] = s.lambda_cross * losses.crossing(self.fast.cosine, g, targets, w_slow, s.cross_pooling)
        if lambda_cos:
            terms["cos"] = lambda_cos * losses.alignment(g, f, s.cos_reduction)
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

    def run_pilots(self, session: Session, fit: Fit) -> tuple[bool, float]:
        """Whether to transfer in the first session, and how much of its tuning to keep: none (0) to all (1)."""
        transfer = self.settings.transfer != "none"
        if not self.settings.pilot or not self.slow.tuning():  # without a PET nothing is tuned
            return transfer, 1.0
        kinds = [False, True] if transfer else [False]
        ways = [lambda pilot, kind=kind: partial(self.slow_loss, kind, pilot) for kind in kinds]
        which, share = choose_tuning(session, fit, self.slow.copy, ways)
        return kinds[which], share

    def weigh_alignment(self, f_slow: Tensor, targets: Tensor, session: Session, fit: Fit) -> float:
        """λ_cos; 0 from the session on whose pictures, before anybody learns from them, show that tuning helps."""
        s = self.settings
        if s.release and s.lambda_cos and self.teacher is self.slow and not self.free:
            _, f_ptm = fit.features(session, self.ptm)
            self.free.fill_(helped(self.slow.ridge, f_ptm, f_slow, targets))
        return 0.0 if self.free else s.lambda_cos

    def stay_near(self, f_slow: Tensor, start: dict[str, Tensor], session: Session, fit: Fit) -> Tensor:
        """φ_fast of the session (N, d), after going back towards ``start`` as far as it takes to stay near φ_slow.

        What the fast learner remembers of earlier sessions are features that it cannot make again, worth something
        only while it moves little, compared with how far pictures are apart. So its tuning becomes the mean, over all
        pictures so far, of where their sessions took it, or less than that. Its cosine head stays as it was trained.
        """
        s, end, guided = self.settings, self.fast.tuning(), self.teacher is self.slow
        apart = 1 - F.normalize(f_slow, dim=1).mean(dim=0).square().sum()
        most = len(f_slow) / float(self.fast.cosine.counts.sum()) if s.average and guided else 1.0
        for share in SHARES:
            self.fast.interpolate(start, end, share * most)
            _, f_fast = fit.features(session, self.fast)
            if s.trust is None or not guided or losses.alignment(f_slow, f_fast) <= s.trust * apart:
                break
        return f_fast

    def restore(self, state: Mapping[str, Tensor], classes: list[Label]) -> None:
        super().restore(state, classes)
        self.slow.freeze()


def both(slow: Tensor, fast: Tensor) -> Tensor:
    """[φ_slow; φ_fast], each on the unit sphere: (N, 2d)."""
    return torch.cat([F.normalize(slow, dim=1), F.normalize(fast, dim=1)], dim=1)
