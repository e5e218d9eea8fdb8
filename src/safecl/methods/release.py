"""When SAFE drops L_cos: its fast learner goes on where tuning helps, and holds still where it does not."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.heads.leave_one_out import MOST, judges
from safecl.heads.ridge import RidgeHead
from safecl.methods.method import Fit
from safecl.streams.stream import Session

HELPS = 0.01  # share of the untuned backbone's error by which the slow learner's must be less


class Release(nn.Module):
    """Drops L_cos while pictures that nothing was learned from show that the slow learner's tuning helps.

    ``errors`` (2,): on such pictures of all sessions so far, without the tuning and with it.
    """

    by_difference: ClassVar[tuple[str, ...]] = ("errors",)
    errors: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("errors", torch.zeros(2))

    @property
    def free(self) -> bool:
        """Whether L_cos is dropped."""
        untuned, tuned = map(float, self.errors)
        return tuned < (1 - HELPS) * untuned

    def weigh(
        self, lambda_cos: float, ridge: RidgeHead, ptm: Backbone, f_slow: Tensor, targets: Tensor,
        session: Session, fit: Fit,
    ) -> float:  # fmt: skip
        """λ_cos of this session: as given, or 0. ``f_slow``: the slow learner's features (N, d) of its pictures."""
        asked = judges(targets, MOST)
        if len(asked):
            _, f_ptm = fit.features(session.only(asked.tolist()), ptm)
            self.errors = self.errors + unseen_errors(ridge, (f_ptm, f_slow[asked]), targets[asked]).to(self.errors)
        return 0.0 if fit.agree(self.free) else lambda_cos

    def drop_class(self, index: int) -> None:
        """The errors are sums over all classes."""

    def merge(self, now: "Release", before: "Release", index: Tensor) -> None:
        """Take over the errors that ``now`` has collected since it was ``before``."""
        self.errors = self.errors + now.errors - before.errors


def unseen_errors(head: RidgeHead, features: tuple[Tensor, ...], targets: Tensor) -> Tensor:
    """Sums of the squared errors on the pictures, left out one at a time: (n,) for n features (N, d)."""
    return torch.stack([head.leave_one_out(each, targets).sum() for each in features])
