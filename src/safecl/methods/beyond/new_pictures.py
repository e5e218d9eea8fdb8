"""Decides nothing: it owns the errors on new pictures, by which others decide.
By: leave-one-out errors of a ridge head on a session's pictures before anything was learned from
them, of the untuned backbone, the slow and the fast learner; sums over all sessions.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.heads.left_out import MAX_JUDGING_PICTURES, judges
from safecl.heads.protocol import Editable, Kind
from safecl.learner import Reader
from safecl.methods.method import Fit
from safecl.methods.safe import SAFE
from safecl.methods.settings.safe import SafeSettings
from safecl.streams.stream import Session

MIN_GAIN = 0.01  # share of the untuned backbone's error by which a learner's must be less to help


class ErrorSums(Editable, nn.Module):
    """Sums (k,) of squared errors. They stay when labels are corrected."""

    by_difference = ("sums",)
    kind: Kind = "evidence"

    def __init__(self, count: int) -> None:
        super().__init__()
        self.sums: Tensor = nn.Buffer(torch.zeros(count))

    def add(self, errors: Tensor) -> None:
        self.sums = self.sums + errors.to(self.sums)

    def merge(self, now: "ErrorSums", before: "ErrorSums", index: Tensor) -> None:
        """Add the errors that ``now`` has collected since it was ``before``."""
        self.sums = self.sums + now.sums - before.sums


class NewPictures(SAFE):
    """Errors of the untuned backbone, the slow and the fast learner."""

    def __init__(self, backbone: Backbone, settings: SafeSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.new_pictures = ErrorSums(3)

    def asks_new_pictures(self) -> bool:
        """Whether anything is decided by them in this model."""
        return False

    def guidance(
        self, before: Mapping[str, Tensor], targets: Tensor, session: Session, fit: Fit
    ) -> float:
        if self.asks_new_pictures():
            rows = judges(targets, MAX_JUDGING_PICTURES)
            if len(rows):
                self.note_errors(before, targets, session, rows, fit)
        return super().guidance(before, targets, session, fit)

    def note_errors(
        self,
        before: Mapping[str, Tensor],
        targets: Tensor,
        session: Session,
        rows: Tensor,
        fit: Fit,
    ) -> None:
        """Add the errors on the pictures at ``rows``."""
        head = self.ridge_slow
        found = {name: features[rows, : head.width] for name, features in before.items()}
        if "untuned" not in found:
            plain = Reader(self.backbone, head.reading.once)
            _, found["untuned"] = fit.features(session.only(rows.tolist()), plain)
        each = [
            head.leave_one_out(found[name], targets[rows]).sum()
            for name in ("untuned", "slow", "fast")
        ]
        self.new_pictures.add(torch.stack(each))
