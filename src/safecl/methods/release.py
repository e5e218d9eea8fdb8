"""When SAFE drops L_cos: its fast learner goes on where tuning helps, and holds still where it does not."""

import torch
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.heads.left_out import MATTERS, judges, surely_less
from safecl.heads.ridge import RidgeHead
from safecl.methods.method import Fit
from safecl.streams.stream import Session

MOST = 256  # pictures of a session that are looked at, or two of each class if there are that many classes


class Release(nn.Module):
    """Drops L_cos for good once pictures that nothing was learned from show that the slow learner's tuning helps."""

    free: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("free", torch.tensor(False))

    def weigh(
        self, lambda_cos: float, ridge: RidgeHead, ptm: Backbone, f_slow: Tensor, targets: Tensor,
        session: Session, fit: Fit,
    ) -> float:  # fmt: skip
        """λ_cos of this session: as given, or 0. ``f_slow``: the slow learner's features (N, d) of its pictures."""
        if lambda_cos and not self.free:
            _, f_ptm = fit.features(session, ptm)
            self.free.fill_(fit.agree(helped(ridge, f_ptm, f_slow, targets)))
        return 0.0 if self.free else lambda_cos


def helped(head: RidgeHead, before: Tensor, after: Tensor, targets: Tensor) -> bool:
    """Whether a tuning has surely helped pictures that it has not seen: their features (N, d) before and after it."""
    asked = judges(targets, MOST)
    if not len(asked):
        return False
    least, found = (head.leave_one_out(features[asked], targets[asked]) for features in (before, after))
    return surely_less(found, least, MATTERS * float(least.mean()))
