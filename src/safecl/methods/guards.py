"""What we add to SAFE so that its fast learner gains where tuning helps and holds still where it does not."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from safecl import losses
from safecl.backbone.backbone import Backbone
from safecl.heads.left_out import judges, surely_less
from safecl.heads.ridge import RidgeHead
from safecl.learner import Learner, Tuning
from safecl.methods.method import Fit
from safecl.streams.stream import Session

SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)  # of a tuning that may be kept
MOST = 256  # pictures of a session that are looked at, or two of each class if there are that many classes
MATTERS = 0.05  # share of the error below which a gain is not worth a risk


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
            self.free.fill_(helped(ridge, f_ptm, f_slow, targets))
        return 0.0 if self.free else lambda_cos


def stay_near(
    fast: Learner, f_slow: Tensor, start: Tuning, most: float, trust: float | None, session: Session, fit: Fit
) -> tuple[Tensor, float]:
    """φ_fast of the session (N, d), after going back towards ``start`` as far as it takes to stay near φ_slow.

    The map from slow to fast features is fitted on the session alone, and stale statistics are not mapped at all: both
    hold for old classes while the fast learner moves little, compared with how far pictures are apart. So of its tuning
    in this session at most the share ``most`` is kept, and less than that if it ends further from the slow learner than
    ``trust`` times that distance: the share of ``most`` that was kept comes second.
    """
    end, apart = fast.tuning(), 1 - F.normalize(f_slow, dim=1).mean(dim=0).square().sum()
    for share in SHARES:
        fast.interpolate(start, end, share * most)
        _, f_fast = fit.features(session, fast)
        if trust is None or losses.alignment(f_slow, f_fast) <= trust * apart:
            break
    return f_fast, share


def helped(head: RidgeHead, before: Tensor, after: Tensor, targets: Tensor) -> bool:
    """Whether a tuning has surely helped pictures that it has not seen: their features (N, d) before and after it."""
    asked = judges(targets, MOST)
    if not len(asked):
        return False
    least, found = (head.leave_one_out(features[asked], targets[asked]) for features in (before, after))
    return surely_less(found, least, MATTERS)
