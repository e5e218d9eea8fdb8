"""What SAFE decides beyond its paper: which loss, which λ_cos, and what share of a tuning is kept."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.heads.cosine import CosineHead
from safecl.heads.leave_one_out import MAX_JUDGING_PICTURES, judges
from safecl.heads.ridge import RidgeHead
from safecl.learner import Learner
from safecl.methods.method import Fit
from safecl.methods.pilot import Choice, SlowLoss, choose_tuning
from safecl.methods.settings.safe import SafeSettings
from safecl.streams.stream import Session

MIN_GAIN = 0.01  # share of the untuned backbone's error by which the slow learner's must be less


class Policy(nn.Module):
    """Three answers. With ``policy.pilot``, ``release`` and ``average`` off, they are the constants of the paper.

    ``share`` (): of a tuning, that is kept; 1 without pilots. ``errors`` (2,): sums of squared errors on the pictures
    of later sessions before anything was learned from them, without the slow learner's tuning and with it.
    """

    by_difference: ClassVar[tuple[str, ...]] = ("errors",)
    share: Tensor
    errors: Tensor

    def __init__(self, settings: SafeSettings) -> None:
        super().__init__()
        self.settings = settings
        self.notes: dict[str, Any] = {}  # what was decided in this session
        self.register_buffer("share", torch.ones(()))
        self.register_buffer("errors", torch.zeros(2))

    def transfers(
        self, slow: Learner, head: CosineHead, ridge: RidgeHead, loss: SlowLoss, session: Session, fit: Fit
    ) -> bool:
        """Whether L_slow has its transfer terms: as set, or as pilots show, which also find the ``share``."""
        wanted, length = self.settings.transfer.loss != "none", self.settings.policy.pilot
        choice = Choice(wanted)
        if length:
            choice = choose_tuning(slow, head, ridge, loss, wanted, length, session, fit)
        self.notes = {"pilots": choice.piloted, "transfer": choice.transfer, "kept": choice.share}
        self.share = torch.full_like(self.share, choice.share)
        return choice.transfer

    def lambda_cos(
        self, ridge: RidgeHead, ptm: Backbone, f_slow: Tensor, targets: Tensor, session: Session, fit: Fit
    ) -> float:
        """λ_cos: as set, or 0 while unseen pictures show that the slow learner's tuning helps; ``f_slow``: (N, d)."""
        self.notes = {}
        s = self.settings.guide
        if not self.settings.policy.release or not s.lambda_cos or s.teacher != "slow":
            return s.lambda_cos
        rows = judges(targets, MAX_JUDGING_PICTURES)
        if len(rows):
            _, f_ptm = fit.features(session.only(rows.tolist()), ptm)
            errors = [ridge.leave_one_out(f, targets[rows]).sum() for f in (f_ptm, f_slow[rows])]
            self.errors = self.errors + torch.stack(errors).to(self.errors)
        untuned, tuned = map(float, self.errors)
        self.notes["released"] = fit.agree(tuned < (1 - MIN_GAIN) * untuned)
        return 0.0 if self.notes["released"] else s.lambda_cos

    def kept(self, pictures: int, so_far: int) -> float:
        """What share of a session's tuning the fast learner keeps: 1, or the pilots' times that of its pictures."""
        share = float(self.share) * (pictures / so_far if self.settings.policy.average else 1.0)
        if self.settings.guide.teacher != "slow" or share == 1:
            return 1.0
        self.notes["average"] = share
        return share

    def drop_class(self, index: int) -> None:
        """The errors are sums over all classes."""

    def merge(self, now: "Policy", before: "Policy", index: Tensor) -> None:
        """Add the errors that ``now`` has collected since it was ``before``; the share is that of the first session."""
        self.errors = self.errors + now.errors - before.errors
