"""SAFE: Slow And Fast parameter-Efficient tuning (NeurIPS 2024), as printed: Algorithm 1.

Each step has its equation beside it; what it is made of stands in ``slow_fast.py``. What goes
beyond the paper (``beyond/``), and what its released code and its ablations do otherwise
(``variants/``), answers some of the questions below in its own way and stands on what is here by
``super()``; the settings say which (``floors.py``).
"""

from collections.abc import Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from safecl import losses
from safecl.heads.cosine import CosineHead
from safecl.heads.left_out import LeftOut
from safecl.learner import Learner, Reader
from safecl.methods.ensemble import by_entropy
from safecl.methods.method import Batch, Fit, Loss
from safecl.methods.slow_fast import Features, SlowAndFast, Teacher
from safecl.streams.stream import Session


class SAFE(SlowAndFast):
    """The slow learner is tuned once and kept; the fast one goes on learning under its guidance."""

    # -- Algorithm 1 ---------------------------------------------------------------------------

    def learn(self, session: Session, fit: Fit) -> None:
        learn = self.learn_fast if self.sessions else self.learn_slow
        targets, features = learn(session, fit)
        self.slow.freeze()
        self.w_slow.requires_grad_(False)
        added = self.add(targets, features, fit)  # G and W̃, Eq. (10)
        self.solve(targets, added)  # (G + βI)⁻¹ W̃ of Eq. (9)

    def learn_slow(self, session: Session, fit: Fit) -> tuple[Tensor, Features]:
        """Session 1: min L_slow over S-PET and W_slow, which becomes centroids; fast ← slow."""
        self.begin(session, fit)
        self.tune("slow", session, fit, partial(self.slow_loss, self.slow, self.w_slow))
        targets, features = self.features_of(session, fit)
        self.w_slow.observe(self.last(features["slow"]), targets)
        self.imprint(self.w_slow)
        self.fast.load_state_dict(self.slow.state_dict())
        self.w_fast.start_as(self.w_slow)
        return targets, {**features, "fast": features["slow"]}

    def learn_fast(self, session: Session, fit: Fit) -> tuple[Tensor, Features]:
        """Session t > 1: both heads get rows for new classes; min L_fast over F-PET and W_fast."""
        known = self.w_slow.classes  # |Y_1:t−1|
        fast = Reader(self.fast, self.ridge_slow.reading.once)
        targets, before = self.features_of(session, fit, fast=fast)
        f_slow = self.last(before["slow"])
        f_fast = self.last(before["fast"])
        teacher = self.teacher(f_fast, targets)
        self.expand(self.w_slow, f_slow, targets)
        self.expand(self.w_fast, f_fast, targets)
        guidance = self.guidance(before, targets, session, fit)
        self.tune("fast", session, fit, partial(self.fast_loss, teacher, known, guidance))
        _, after = fit.features(session, self.networks["fast"])
        return targets, {**before, "fast": after}

    def slow_loss(self, slow: Learner, head: CosineHead, batch: Batch) -> dict[str, Tensor]:
        """L_slow = L_cls + λ_diag L_diag + λ_rdn L_rdn, Eq. (5)."""
        f = batch.features(slow)
        cls = F.cross_entropy(head(f), batch.targets)  # Eq. (4)
        return {"cls": cls, **self.transfer(f, cls, batch)}

    def fast_loss(
        self, teacher: Teacher, known: int, guidance: float, batch: Batch
    ) -> dict[str, Tensor]:
        """L_fast = L_cls + L_s↔f + λ_cos L_cos, Eq. (8); λ_cos is the ``guidance``."""
        f = batch.features(self.fast)
        terms = {"cls": F.cross_entropy(self.w_fast(f), batch.targets)}  # Eq. (4)
        with torch.no_grad():
            g = batch.features(teacher.network)
        terms |= self.cross(teacher, known, f, g, batch.targets)
        if guidance:
            terms["cos"] = guidance * self.align(g, f)
        return terms

    def answer(
        self, features: Mapping[str, Tensor], left_out: LeftOut | None = None
    ) -> dict[str, Tensor]:
        """z_slow and z_fast of Eq. (9), and their aggregate; after session 1 the slow one alone."""
        voices = self.voices(self.sessions)
        z = {name: self.voiced(name, voice, features, left_out) for name, voice in voices.items()}
        safe = z["slow"] if self.sessions == 1 else self.combine(z["slow"], z["fast"])
        return {**z, "safe": safe}

    # -- The questions, with the paper's answers -----------------------------------------------

    def tune(self, name: str, session: Session, fit: Fit, loss: Loss, share: float = 1.0) -> None:
        """How a learner is tuned, and what share of its tuning is kept: all."""
        learner, head = self.pair(name)
        start = learner.tuning()
        fit(name, nn.ModuleList([learner, head]), session, loss)
        learner.interpolate(start, learner.tuning(), share)

    def transfer(self, f: Tensor, cls: Tensor, batch: Batch) -> dict[str, Tensor]:
        """The terms that carry knowledge of the PTM to features f (N, d), beside L_cls."""
        with torch.no_grad():
            g = batch.features(self.backbone)
        m = losses.cross_correlation(g, f)  # Eq. (1)
        s = self.settings.transfer
        return {
            "diag": s.lambda_diag * losses.diagonal(m),  # Eq. (2)
            "rdn": s.lambda_rdn * losses.redundancy(m),  # Eq. (3)
        }

    def teacher(self, f_fast: Tensor, targets: Tensor) -> Teacher:
        """Who guides the fast learner, whose features are still those of the session before."""
        return Teacher(self.slow, self.w_slow)

    def guidance(
        self, before: Mapping[str, Tensor], targets: Tensor, session: Session, fit: Fit
    ) -> float:
        """λ_cos, given by network the features of the session ``before`` anything is tuned."""
        return self.settings.guide.lambda_cos

    def align(self, g: Tensor, f: Tensor) -> Tensor:
        """L_cos of features (N, d) of the teacher and of the fast learner, Eq. (6)."""
        return losses.alignment(g, f)

    def cross(
        self, teacher: Teacher, known: int, f: Tensor, g: Tensor, targets: Tensor
    ) -> dict[str, Tensor]:
        """L_s↔f = L_f2s + L_s2f, Eq. (7) both ways; ``known`` classes of earlier sessions."""
        w_fast = self.w_fast.weight[:known]
        w_slow = teacher.head.weight[:known]
        return {
            "f2s": losses.crossing(teacher.head, f, targets, w_fast),
            "s2f": losses.crossing(self.w_fast, g, targets, w_slow),
        }

    def combine(self, slow: Tensor, fast: Tensor) -> Tensor:
        """z = α_slow z_slow + α_fast z_fast by entropy, Eq. (11)."""
        return by_entropy(slow, fast, self.settings.answer.gamma)
