"""SAFE: Slow And Fast parameter-Efficient tuning (NeurIPS 2024). ``SAFE.learn`` is the paper's Algorithm 1."""

import copy
from collections.abc import Mapping
from functools import partial
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from safecl import losses
from safecl.backbone.backbone import Backbone
from safecl.heads.aggregate import aggregate
from safecl.heads.cosine import CosineHead
from safecl.heads.ridge import RidgeHead
from safecl.heads.statistics import require_memory
from safecl.learner import Learner, Tuning
from safecl.methods.memory import SlowMemory
from safecl.methods.method import Batch, Fit, Method, Network
from safecl.methods.pilot import Choice, choose_tuning
from safecl.methods.release import Release
from safecl.methods.settings.safe import SafeSettings
from safecl.randomness import generator
from safecl.streams.stream import Session


class Teacher(NamedTuple):
    """Who guides the fast learner through a session: features, and a row for every class."""

    network: Network
    head: CosineHead


class SAFE(Method):
    """Two learners on one frozen backbone: the slow one is tuned once and kept, the fast one goes on learning."""

    outputs = ("slow", "fast", "safe")
    anchor = "slow"
    heads: ClassVar = {"slow": "ridge_slow", "fast": "ridge_fast"}
    handles = ("share",)  # of the first session, which models that can be merged have in common
    learning = ("memory.",)
    settings: SafeSettings
    share: Tensor

    def __init__(self, backbone: Backbone, settings: SafeSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        s, d, device = settings, backbone.width, backbone.device
        heads = 3 if s.answer.aggregation == "concat" else 2
        require_memory(s.ridge.size if s.ridge.project else d, device, d, grams=heads)
        self.slow, self.fast = Learner(backbone, s.pet, seed), Learner(backbone, s.pet, seed)
        self.w_slow, self.w_fast, self.w_ptm = (CosineHead(d, s.scale) for _ in range(3))
        self.memory = SlowMemory(d, seed) if s.answer.statistics == "following" else None
        kept = self.memory is None  # otherwise they follow from those of the slow learner
        self.ridge_slow, self.ridge_fast = (RidgeHead(d, s.ridge, seed, device, each) for each in (True, kept))
        if s.answer.statistics == "shared":
            self.ridge_slow.statistics = self.ridge_fast.statistics
        self.joint = RidgeHead(2 * d, s.ridge, seed, device) if s.answer.aggregation == "concat" else None
        self.release = Release()
        self.register_buffer("share", torch.ones(()))  # of a tuning, that is kept; 1 without pilots
        self.w_ptm.requires_grad_(False)
        self.to(device)

    def learn(self, session: Session, fit: Fit) -> None:
        """Algorithm 1."""
        if not self.sessions:  # Phase 1: slow learner in session t = 1
            self.w_slow.grow_random(len(self.classes), generator(self.seed, "head"))
            self.imprint_ptm(session, fit)
            transfer, start = self.pilot(session, fit), self.slow.tuning()
            loss = partial(self.slow_loss, transfer, self.slow, self.w_slow)
            fit("slow", nn.ModuleList([self.slow, self.w_slow]), session, loss)
            self.slow.interpolate(start, self.slow.tuning(), float(self.share))
            targets, f_slow = fit.features(session, self.slow)
            self.w_slow.observe(f_slow, targets)
            if self.settings.cosine.slow_rows == "imprint":
                self.w_slow.imprint()
            if self.settings.cosine.reset_scale:
                self.w_slow.scale.data.fill_(self.settings.scale)
            self.fast.load_state_dict(self.slow.state_dict())
            self.w_fast.load_state_dict(self.w_slow.state_dict())
            f_fast = f_slow
        else:  # Phase 2: fast learner in session t > 1
            known = self.w_slow.classes
            targets, f_slow, f_fast = fit.features(session, self.slow, self.fast)
            self.imprint_ptm(session, fit)
            teacher = self.appoint_teacher(f_fast, targets)
            self.expand(self.w_slow, f_slow, targets)
            self.expand(self.w_fast, f_fast, targets)
            start, lambda_cos = self.fast.tuning(), self.weigh_alignment(f_slow, targets, session, fit)
            loss = partial(self.fast_loss, teacher, known, lambda_cos)
            fit("fast", nn.ModuleList([self.fast, self.w_fast]), session, loss)
            self.hold_back(start, len(targets))
            _, f_fast = fit.features(session, self.fast)
        self.slow.freeze()
        self.w_slow.requires_grad_(False)
        self.add_statistics(f_slow, f_fast, targets)

    def slow_loss(self, transfer: bool, slow: Learner, head: CosineHead, batch: Batch) -> dict[str, Tensor]:
        """L_slow of Eq. (5), with or without what is transferred from the PTM."""
        s, f = self.settings.transfer, batch.features(slow)
        terms = {"cls": F.cross_entropy(head(f), batch.targets)}  # Eq. (4)
        if not transfer:
            return terms
        with torch.no_grad():
            g = batch.features(self.backbone)
        if s.loss == "correlation":
            m = losses.cross_correlation(g, f, s.normalisation)
            extra = {
                "diag": s.lambda_diag * losses.diagonal(m, s.reduction),
                "rdn": s.lambda_rdn * losses.redundancy(m, s.reduction),
            }
        elif s.loss == "fa":
            extra = {"fa": s.lambda_distil * losses.feature_alignment(g, f)}
        elif s.loss == "la":
            extra = {"la": s.lambda_distil * losses.logit_alignment(g, f, self.w_ptm.weight)}
        else:
            assert s.loss == "ssa"
            extra = {"ssa": s.lambda_distil * losses.covariance_alignment(g, f)}
        if s.limit is not None and f.requires_grad:
            extra = {key: losses.limited(term, terms["cls"], f, s.limit) for key, term in extra.items()}
        return terms | extra

    def fast_loss(self, teacher: Teacher | None, known: int, lambda_cos: float, batch: Batch) -> dict[str, Tensor]:
        """L_fast of Eq. (8); ``known``: classes of earlier sessions."""
        s, f, targets = self.settings.guide, batch.features(self.fast), batch.targets
        terms = {"cls": F.cross_entropy(self.w_fast(f), targets)}  # Eq. (4)
        if teacher is None:
            return terms
        with torch.no_grad():
            g = batch.features(teacher.network)
        if s.lambda_cross:
            w_fast, w_slow = self.w_fast.weight[:known], teacher.head.weight[:known]
            terms["f2s"] = s.lambda_cross * losses.crossing(teacher.head, f, targets, w_fast, s.cross_pooling)
            terms["s2f"] = s.lambda_cross * losses.crossing(self.w_fast, g, targets, w_slow, s.cross_pooling)
        if lambda_cos:
            terms["cos"] = lambda_cos * losses.alignment(g, f, s.cos_reduction)
        return terms

    def add_statistics(self, f_slow: Tensor, f_fast: Tensor, targets: Tensor) -> None:
        """Eq. (10): the heads of both learners, from their features (N, d) of the session."""
        joint = None if self.joint is None else concatenated(f_slow, f_fast)
        for ridge, features in ((self.ridge_fast, f_fast), (self.joint, joint), (self.ridge_slow, f_slow)):
            if ridge is not None and features is not None:
                if ridge.statistics.kept:
                    ridge.add(features, targets)
                    ridge.solve()
                else:
                    ridge.add_evidence(features, targets)
        if self.memory is not None:
            self.memory.add(f_slow, targets)
            if self.sessions:
                self.memory.move(f_slow, f_fast, targets)
                self.follow()

    def follow(self) -> None:
        """The fast learner's head of all sessions, from what is kept of the slow learner's features."""
        assert self.memory is not None
        self.memory.follow(self.ridge_slow, self.ridge_fast)
        self.ridge_fast.solve()

    def embed(self, images: Tensor) -> dict[str, Tensor]:
        """φ_slow and φ_fast, which are one network until session 2."""
        f_slow = self.slow.features(images)
        return {"slow": f_slow, "fast": f_slow if self.sessions == 1 else self.fast.features(images)}

    def answer(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """z_slow, z_fast of Eq. (9), and their aggregate of Eq. (11)."""
        s, f_slow, f_fast = self.settings.answer, features["slow"], features["fast"]

        def logits(ridge: RidgeHead, head: CosineHead, f: Tensor) -> Tensor:
            return ridge.logits(f) * (head.scale if s.temperature == "learned" else s.temperature)

        slow = logits(self.ridge_slow, self.w_slow, f_slow)
        if self.memory is not None and self.sessions == 1:  # nothing has moved yet
            return {"slow": slow, "fast": slow, "safe": slow}
        fast = logits(self.ridge_fast, self.w_fast, f_fast)
        if self.joint is not None:
            safe = self.joint.logits(concatenated(f_slow, f_fast))
        else:
            assert s.aggregation != "concat"
            safe = fast if self.sessions == 1 else aggregate(slow, fast, s.aggregation, s.gamma)
        return {"slow": slow, "fast": fast, "safe": safe}

    def refresh(self) -> None:
        self.ridge_slow.solve()
        if self.memory is None:
            super().refresh()
        elif self.sessions > 1:
            self.follow()
        self.w_ptm.imprint()
        if self._imprints(self.w_slow):
            self.w_slow.imprint()

    def pilot(self, session: Session, fit: Fit) -> bool:
        """Whether to transfer, and the ``share`` of a tuning to keep: as set, or as pilots show."""
        wanted = self.settings.transfer.loss != "none"
        choice = Choice(transfer=wanted)
        if self.settings.policy.pilot:
            heads, length = (self.w_slow, self.ridge_slow), self.settings.policy.pilot
            choice = choose_tuning(self.slow, *heads, self.slow_loss, wanted, length, session, fit)
        self.notes |= {"pilots": choice.piloted, "transfer": choice.transfer, "kept": choice.share}
        self.share = torch.full_like(self.share, choice.share)
        return choice.transfer

    def weigh_alignment(self, f_slow: Tensor, targets: Tensor, session: Session, fit: Fit) -> float:
        """λ_cos; 0 while the slow learner's tuning is seen to help."""
        s = self.settings.guide
        if not self.settings.policy.release or not s.lambda_cos or s.teacher != "slow":
            return s.lambda_cos
        chosen = self.release.weigh(s.lambda_cos, self.ridge_slow, self.backbone, f_slow, targets, session, fit)
        self.notes["released"] = not chosen
        return chosen

    def hold_back(self, start: Tuning, pictures: int) -> None:
        """Keep the share of a session's tuning that pilots found, times the weight of its pictures among all so far."""
        s, share = self.settings, float(self.share)
        if s.policy.average:
            share *= pictures / float(self.w_fast.counts.sum())
        if s.guide.teacher == "slow" and share < 1:
            self.fast.interpolate(start, self.fast.tuning(), share)
            self.notes["average"] = share

    def appoint_teacher(self, f_fast: Tensor, targets: Tensor) -> Teacher | None:
        """Who guides the fast learner in this session, while its features are still those of the session before."""
        if self.settings.guide.teacher == "slow":
            return Teacher(self.slow, self.w_slow)
        if self.settings.guide.teacher == "ptm":
            return Teacher(self.backbone, self.w_ptm)
        if self.settings.guide.teacher == "previous":
            network, head = self.fast.copy(), copy.deepcopy(self.w_fast).requires_grad_(False)
            network.freeze()
            self.expand(head, f_fast, targets)
            return Teacher(network, head)
        return None

    def imprint_ptm(self, session: Session, fit: Fit) -> None:
        """The PTM's prototypes, where a loss needs them."""
        if self.settings.guide.teacher == "ptm" or self.settings.transfer.loss == "la":
            targets, features = fit.features(session, self.backbone)
            self.expand(self.w_ptm, features, targets)

    def expand(self, head: CosineHead, features: Tensor, targets: Tensor) -> None:
        """W ∈ R^{d×|Y_1:t−1|} → R^{d×|Y_1:t|}: imprint the classes that ``head`` has no row for yet."""
        head.observe(features, targets)
        rows = head.centroids()[head.classes :]
        head.grow(rows if self.settings.cosine.new_rows == "imprint" else torch.zeros_like(rows))
        if self._imprints(head):
            head.imprint()  # a frozen learner's centroids become better with more pictures of a known class

    def _imprints(self, head: CosineHead) -> bool:
        """Whether the rows of ``head`` are the centroids of all pictures so far."""
        s = self.settings.cosine
        return head is self.w_ptm or (head is self.w_slow and s.slow_rows == s.new_rows == "imprint")


def concatenated(slow: Tensor, fast: Tensor) -> Tensor:
    """[φ_slow; φ_fast], each on the unit sphere: (N, 2d)."""
    return torch.cat([F.normalize(slow, dim=1), F.normalize(fast, dim=1)], dim=1)
