"""SAFE: Slow And Fast parameter-Efficient tuning (NeurIPS 2024). ``SAFE.learn`` is the paper's Algorithm 1."""

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from safecl import losses
from safecl.backbone.backbone import Backbone
from safecl.heads.aggregate import aggregate, concatenate, lead_weight, weights
from safecl.heads.cosine import CosineHead
from safecl.heads.leave_one_out import MAX_JUDGING_PICTURES, judges, leaving_out, one_of_each
from safecl.heads.nearest import NearestMean
from safecl.heads.ridge import RidgeHead
from safecl.heads.solve import factors_kept
from safecl.heads.statistics import Movement, require_memory
from safecl.learner import Learner, Reader
from safecl.methods.following import Following
from safecl.methods.method import Batch, Fit, Method, Network
from safecl.methods.policy import Policy
from safecl.methods.reading import choose_reading
from safecl.methods.settings.safe import SafeSettings
from safecl.randomness import generator
from safecl.streams.stream import Session

TRANSFER_LIMIT = 0.1  # share of the gradient of L_cls that that of a transfer term has at most; not in the paper
MIN_JUDGING_CLASSES = 4  # of a session that says which learner counts: a map fitted on fewer is wrong about them first

Learned: TypeAlias = tuple[Tensor, dict[str, Tensor]]
"""Class indices (N,) of a session's pictures, and by network what its ridge head reads after it, (N, d′) each."""


class Teacher(NamedTuple):
    """Who guides the fast learner through a session: features, and a row for every class."""

    network: Network
    head: CosineHead


class SAFE(Method):
    """Two learners on one frozen backbone: the slow one is tuned once and kept, the fast one goes on learning.

    Where pilots gain little, from session 2 on the output "slow" is that of the slow learner without its tuning: the
    untuned backbone, with statistics of its own. The tuned one remains the teacher, and statistics follow from it.
    """

    outputs = ("slow", "fast", "safe")
    anchor = "slow"
    learning = ("following.",)
    moving = ("fast",)
    settings: SafeSettings

    def __init__(self, backbone: Backbone, settings: SafeSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        s, d, device = settings, backbone.width, backbone.device
        piloted = s.answer.statistics == "following" and s.pilot > 0
        grams = 3 if piloted or s.answer.aggregation == "concat" else 2
        require_memory(s.ridge.size if s.ridge.project else d, device, d, grams=grams)
        self.slow, self.fast = Learner(backbone, s.pet, seed), Learner(backbone, s.pet, seed)
        self.w_slow, self.w_ptm = CosineHead(d, s.scale), CosineHead(d, s.scale)
        self.w_fast = CosineHead(d, s.scale, sums=False)
        self.w_ptm.requires_grad_(False)
        self.following = Following(d, seed) if s.answer.statistics == "following" else None
        self.nearest = None if self.following is None else NearestMean(d)
        self.ridge_slow = RidgeHead(d, s.ridge, seed, device)
        self.ridge_fast = RidgeHead(d, s.ridge, seed, device, kept=self.following is None)
        self.ridge_untuned = RidgeHead(d, s.ridge, seed, device) if piloted else None
        if s.answer.statistics == "shared":
            self.ridge_fast.share(self.ridge_slow)
        self.joint = RidgeHead(2 * d, s.ridge, seed, device) if s.answer.aggregation == "concat" else None
        self.policy = Policy(s)

    def learn(self, session: Session, fit: Fit) -> None:
        """Algorithm 1."""
        if self.settings.guide.teacher == "ptm" or self.settings.transfer.loss == "la":  # needs the PTM's prototypes
            targets, f_ptm = fit.features(session, self.backbone)
            self.expand(self.w_ptm, f_ptm, targets)
        phase = self.learn_fast if self.sessions else self.learn_slow
        targets, features = phase(session, fit)
        self.slow.freeze()
        self.w_slow.requires_grad_(False)
        self.add_statistics(targets, features)
        self.notes |= self.policy.notes

    def learn_slow(self, session: Session, fit: Fit) -> Learned:
        """Phase 1: min L_slow over S-PET and W_slow, Eq. (5); W_slow becomes centroids; the fast learner is a copy."""
        s, tuned = self.settings.cosine, nn.ModuleList([self.slow, self.w_slow])
        self.w_slow.grow_random(len(self.classes), generator(self.seed, "head"))
        if self.joint is None:
            choose_reading(self.ridge_slow, self.backbone, session, fit)
            for other in (self.ridge_fast, self.ridge_untuned):
                if other is not None:
                    other.read(self.ridge_slow.reading)
        transfers, share, untuned = self.policy.transfers(
            self.slow, self.w_slow, self.ridge_slow, self.slow_loss, session, fit
        )
        start = self.slow.tuning()
        fit("slow", tuned, session, partial(self.slow_loss, transfers, self.slow, self.w_slow))
        self.slow.interpolate(start, self.slow.tuning(), share)
        frozen = ["slow", "untuned"] if untuned else ["slow"]
        targets, f_slow, *found = fit.features(session, *(self.networks[name] for name in frozen))
        self.w_slow.observe(self.last(f_slow), targets)
        if s.slow_rows == "imprint":
            self.w_slow.imprint()
        if s.reset_scale:
            self.w_slow.scale.data.fill_(self.settings.scale)
        self.fast.load_state_dict(self.slow.state_dict())
        self.w_fast.load_state_dict(self.w_slow.state_dict())
        self.w_fast.grow(self.w_fast.weight[:0])
        return targets, {"fast": f_slow, **dict(zip(frozen, [f_slow, *found], strict=True))}

    def learn_fast(self, session: Session, fit: Fit) -> Learned:
        """Phase 2: both heads get rows for the new classes; min L_fast over F-PET and W_fast, Eq. (8)."""
        known, tuned = self.w_slow.classes, nn.ModuleList([self.fast, self.w_fast])
        frozen = [name for name in self.heads if name not in self.moving]
        once = Reader(self.fast, self.ridge_slow.reading.once)
        targets, f_fast, f_slow, *found = fit.features(session, once, *(self.networks[name] for name in frozen))
        teacher = self.appoint_teacher(self.last(f_fast), targets)
        self.expand(self.w_slow, self.last(f_slow), targets)
        self.expand(self.w_fast, self.last(f_fast), targets)
        before = [f_fast, f_slow, *found]
        lambda_cos = self.policy.lambda_cos(self.ridge_slow, self.backbone, before, targets, session, fit)
        start = self.fast.tuning()
        fit("fast", tuned, session, partial(self.fast_loss, teacher, known, lambda_cos))
        share = self.policy.kept(len(targets), int(self.w_slow.counts.sum()))
        self.fast.interpolate(start, self.fast.tuning(), share)
        _, f_fast = fit.features(session, self.networks["fast"])
        return targets, {"fast": f_fast, **dict(zip(frozen, [f_slow, *found], strict=True))}

    def last(self, features: Tensor) -> Tensor:
        """Of what a ridge head reads (N, d′), the features (N, d) of the network itself."""
        return features[:, : self.backbone.width]

    def slow_loss(self, transfers: bool, slow: Learner, head: CosineHead, batch: Batch) -> dict[str, Tensor]:
        """L_slow = L_cls + λ_diag L_diag + λ_rdn L_rdn, Eq. (5), or with another transfer loss, or with none."""
        s, f = self.settings.transfer, batch.features(slow)
        terms = {"cls": F.cross_entropy(head(f), batch.targets)}  # Eq. (4)
        if not transfers:
            return terms
        with torch.no_grad():
            g = batch.features(self.backbone)
        if s.loss == "correlation":
            m = losses.cross_correlation(g, f)  # Eq. (1)
            extra = {
                "diag": s.lambda_diag * losses.diagonal(m, s.reduction),  # Eq. (2)
                "rdn": s.lambda_rdn * losses.redundancy(m, s.reduction),  # Eq. (3)
            }
        elif s.loss == "fa":
            extra = {"fa": losses.alignment(g, f)}
        elif s.loss == "la":
            extra = {"la": losses.logit_alignment(g, f, self.w_ptm.weight)}
        else:
            extra = {"ssa": losses.covariance_alignment(g, f)}
        if self.settings.pilot:
            extra = {key: losses.limited(term, terms["cls"], f, TRANSFER_LIMIT) for key, term in extra.items()}
        return terms | extra

    def fast_loss(self, teacher: Teacher | None, known: int, lambda_cos: float, batch: Batch) -> dict[str, Tensor]:
        """L_fast = L_cls + L_s↔f + λ_cos L_cos, Eq. (8); ``known``: classes of earlier sessions."""
        s, f, targets = self.settings.guide, batch.features(self.fast), batch.targets
        terms = {"cls": F.cross_entropy(self.w_fast(f), targets)}  # Eq. (4)
        if teacher is None:
            return terms
        with torch.no_grad():
            g = batch.features(teacher.network)
        if s.lambda_cross:  # Eq. (7), both ways
            w_fast, w_slow = self.w_fast.weight[:known], teacher.head.weight[:known]
            terms["f2s"] = s.lambda_cross * losses.crossing(teacher.head, f, targets, w_fast, s.cross_pooling)
            terms["s2f"] = s.lambda_cross * losses.crossing(self.w_fast, g, targets, w_slow, s.cross_pooling)
        if lambda_cos:
            terms["cos"] = lambda_cos * losses.alignment(g, f, s.cos_reduction)  # Eq. (6)
        return terms

    @factors_kept()  # judging asks for those of the same sums
    def add_statistics(self, targets: Tensor, features: Mapping[str, Tensor]) -> None:
        """G and W̃ of Eq. (10) for each network, from its features (N, d′) of the session, and the heads from them."""
        f_slow, f_fast, moved = features["slow"], features["fast"], None
        added = {"fast": self.ridge_fast.add(f_fast, targets)}
        if self.following is None:
            self.ridge_fast.solve()  # before the slow learner's are added, where both share them
        if self.joint is not None:
            self.joint.add(concatenate(f_slow, f_fast), targets)
            self.joint.solve()
        added["slow"] = self.ridge_slow.add(f_slow, targets)
        if self.following is None:
            self.ridge_slow.solve()
        else:
            untuned = "untuned" in features
            if not self.sessions:
                plain = self.backbone.width if untuned else 0
                self.following = Following(self.ridge_slow.width, self.seed, plain).to(self.backbone.device)
            self.following.kept.add(added["slow"][:, : self.ridge_slow.width], targets)
            if untuned and self.ridge_untuned is not None:
                added["untuned"] = self.ridge_untuned.add(features["untuned"], targets)
                self.following.untuned.add(self.last(added["untuned"]), targets)
            if self.sessions:
                self.following.fit(f_slow, f_fast, targets)
            moved = self.settle(self.sessions + 1)
        answer = self.settings.answer
        if answer.aggregation == "errors" and answer.statistics != "shared" and self.sessions:
            self.judge(targets, added, moved)

    def settle(self, learned: int) -> Movement | None:
        """Where statistics follow: compute the heads that answer after so many sessions, from all that is kept.

        Gives the movement of those of the fast learner, if it has moved.
        """
        assert self.following is not None and self.nearest is not None
        beside = self.beside(learned)
        getattr(self, self.heads[beside]).solve()
        if beside == "untuned":
            self.ridge_slow.weight = self.ridge_slow.weight[:, :0]
        self.nearest.follow(self.following.untuned if beside == "untuned" else self.following.kept)
        return self.following.follow(self.ridge_slow, self.ridge_fast) if learned > 1 else None

    def judge(self, targets: Tensor, features: Mapping[str, Tensor], moved: Movement | None) -> None:
        """Note how far both that answer are wrong on some of the session's pictures, as if these were not learned."""
        rows = judges(targets, MAX_JUDGING_PICTURES)
        if len(torch.unique(targets[rows])) < MIN_JUDGING_CLASSES:
            return
        own, features = targets[rows], {name: f[rows] for name, f in features.items()}
        both = (self.beside(self.sessions + 1), "fast")
        with leaving_out(self, own, one_of_each(own), self.included(features, moved)):
            logits = [getattr(self, self.heads[name]).logits(features[name]) for name in both]
        wanted = F.one_hot(own, logits[0].shape[1])
        errors = torch.stack([(z - wanted).square().sum() for z in logits])
        self.policy.judged = self.policy.judged + errors.to(self.policy.judged)

    @property
    def untuned(self) -> bool:
        """Whether the untuned backbone has statistics, or, where these were left out for predictions, a head."""
        head = self.ridge_untuned
        return head is not None and head.statistics.sums.shape[1] + head.weight.shape[1] > 0

    def beside(self, learned: int) -> str:
        """Who answers beside the fast learner after so many sessions; the first one's classes are tuned for."""
        return "untuned" if self.untuned and learned > 1 else "slow"

    def embed(self, images: Tensor) -> dict[str, Tensor]:
        """φ_slow and φ_fast, which are one network until session 2; or features of who answers in place of φ_slow."""
        reading, beside = self.ridge_slow.reading.once, self.beside(self.sessions)
        found = (self.slow if beside == "slow" else self.backbone).read(images, reading)
        return {beside: found, "fast": found if self.sessions == 1 else self.fast.read(images, reading)}

    @property
    def networks(self) -> dict[str, Network]:
        reading = self.ridge_slow.reading
        read: dict[str, Learner | Backbone] = {"slow": self.slow, "fast": self.fast, "untuned": self.backbone}
        return {**{name: Reader(network, reading) for name, network in read.items()}, "backbone": self.backbone}

    @property
    def heads(self) -> dict[str, str]:
        found = {"slow": "ridge_slow", "fast": "ridge_fast"}
        return {**found, "untuned": "ridge_untuned"} if self.untuned else found

    @property
    def reads(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {"w_slow": ("slow",), "w_fast": ("fast",), "ridge_slow": ("slow",)}
        found |= {"w_ptm": ("backbone",)} if self.w_ptm.classes else {}
        found |= {"ridge_fast": ("fast",)} if self.following is None else {"following.kept": ("ridge_slow",)}
        found |= {"ridge_untuned": ("untuned",), "following.untuned": ("ridge_untuned",)} if self.untuned else {}
        return found if self.joint is None else {**found, "joint": ("slow", "fast")}

    def side_by_side(self, features: Sequence[Tensor]) -> Tensor:
        return concatenate(*features) if len(features) == 2 else features[0]

    def correct(self, features: Mapping[str, Tensor], old: Tensor, new: Tensor) -> None:
        """As every method, and new classes get rows in the cosine heads, as in ``expand``."""
        super().correct(features, old, new)
        for head in (self.w_slow, self.w_fast, self.w_ptm):
            self.grow(head)

    @property
    def leaves_out(self) -> bool:
        """Where the fast learner's statistics, and what is kept of pictures, are of the learner as it is today."""
        statistics = self.settings.answer.statistics
        return statistics == "following" or (statistics == "stale" and self.sessions == 1)

    def to_keep(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Features of frozen networks, which stay true; where the fast learner's head follows, these are enough."""
        return {name: f for name, f in features.items() if self.following is None or name not in self.moving}

    def recalled(self, kept: Mapping[str, Tensor], targets: Tensor) -> dict[str, Tensor]:
        """φ_slow, and φ_fast where its statistics are."""
        return dict(kept) if self.following is None else {**kept, "fast": self.following(kept["slow"], targets)}

    def included(self, features: Mapping[str, Tensor], moved: Movement | None = None) -> dict[str, Tensor]:
        """A head that follows has the slow learner's features, moved; ``moved``: how, if that is known."""
        if self.following is None or not self.ridge_fast.weight.numel():  # nothing has moved yet
            return {}
        rows = self.ridge_slow.project(self.ridge_slow.views(features["slow"]))
        return {"ridge_fast": (moved or self.following.movement(self.ridge_fast))(rows)}

    def answer(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """z_slow, z_fast of Eq. (9), and their aggregate of Eq. (11)."""
        s, beside = self.settings.answer, self.beside(self.sessions)
        f_slow, f_fast = features[beside], features["fast"]

        def logits(ridge: RidgeHead, head: CosineHead, f: Tensor) -> Tensor:
            return ridge.logits(f) * (head.scale if s.temperature == "learned" else s.temperature)

        slow = fast = logits(getattr(self, self.heads[beside]), self.w_slow, f_slow)
        if self.following is None or self.sessions > 1:  # otherwise nothing has moved yet
            fast = logits(self.ridge_fast, self.w_fast, f_fast)
        if self.joint is not None:
            safe = self.joint.logits(concatenate(f_slow, f_fast))
        elif self.sessions == 1:
            safe = fast
        elif s.aggregation == "errors":
            safe = torch.lerp(slow, fast, self.lead)
        else:
            safe = aggregate(slow, fast, s.aggregation, s.gamma)
        return {"slow": slow, "fast": fast, "safe": safe}

    def likeness(self, features: Mapping[str, Tensor]) -> Tensor | None:
        """Less, the further features of who answers beside the fast learner are from the nearest class mean."""
        if self.nearest is None or "slow" not in self.outputs:  # where the fast one is asked alone
            return None
        found: Tensor = -self.nearest(self.last(features[self.beside(self.sessions)]))
        return found

    @property
    def lead(self) -> Tensor:
        """α_fast by the errors of both that answer: (), on classes that the fast learner has just been tuned on.

        As it is worse on others, α beside the untuned backbone is one half at most, or none: see ``fast_helps``.
        """
        lead = lead_weight(self.policy.judged)
        return lead if self.beside(self.sessions) == "slow" else lead.clamp(max=0.5) * self.policy.fast_helps

    def weights(self, logits: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """α of Eq. (11), or by errors; after session 1 the two are one network."""
        if self.settings.answer.aggregation == "errors":
            lead = self.lead.to(logits["fast"]) if self.sessions > 1 else 0.5  # logits may have left the device
            fast = torch.ones_like(logits["fast"][:, 0]) * lead
            return {"slow": 1 - fast, "fast": fast}
        if self.settings.answer.aggregation != "entropy":
            return {}
        alpha = weights(logits["slow"], logits["fast"], self.settings.answer.gamma if self.sessions > 1 else 0.0)
        return {"slow": alpha[:, 0], "fast": alpha[:, 1]}

    def refresh(self) -> None:
        if self.following is None:
            super().refresh()
        else:
            self.settle(self.sessions)
        for head in (self.w_ptm, self.w_slow):
            if self._imprints(head):
                head.imprint()

    def appoint_teacher(self, f_fast: Tensor, targets: Tensor) -> Teacher | None:
        """Who guides the fast learner in this session, while its features are still those of the session before."""
        if self.settings.guide.teacher == "previous":
            network, head = self.fast.copy(), copy.deepcopy(self.w_fast).requires_grad_(False)
            network.freeze()
            self.expand(head, f_fast, targets)
            return Teacher(network, head)
        others = {"slow": Teacher(self.slow, self.w_slow), "ptm": Teacher(self.backbone, self.w_ptm)}
        return others.get(self.settings.guide.teacher)

    def expand(self, head: CosineHead, features: Tensor, targets: Tensor) -> None:
        """W ∈ R^{d×|Y_1:t−1|} → R^{d×|Y_1:t|}: imprint the classes that ``head`` has no row for yet."""
        head.observe(features, targets)
        self.grow(head)

    def grow(self, head: CosineHead) -> None:
        """Rows for classes that were observed and have none yet."""
        rows = head.centroids()[head.classes :]
        head.grow(rows if self.settings.cosine.new_rows == "imprint" else torch.zeros_like(rows))
        if self._imprints(head):
            head.imprint()  # a frozen learner's centroids become better with more pictures of a known class

    def _imprints(self, head: CosineHead) -> bool:
        """Whether the rows of ``head`` are the centroids of all pictures so far."""
        s = self.settings.cosine
        return head is self.w_ptm or (head is self.w_slow and s.slow_rows == s.new_rows == "imprint")
