"""Decides: how much each of the two that answer counts.
By: squared errors, in all sessions together, on some of a session's pictures after it was learned,
as if these had not been learned.
Worth: not measured against entropy alone; SAFE 74.6, its slow learner 72.9, its fast one 74.0
(48 cells, docs/results.md).
"""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.heads.left_out import MAX_JUDGING_PICTURES, LeftOut, judges, one_of_each
from safecl.heads.solve import factors_kept
from safecl.methods.beyond.new_pictures import ErrorSums
from safecl.methods.ensemble import lead_weight
from safecl.methods.method import Included
from safecl.methods.safe import SAFE
from safecl.methods.settings.safe import SafeSettings
from safecl.methods.slow_fast import Features

# of a session that says which learner counts: a map fitted on fewer is wrong about them first
MIN_JUDGING_CLASSES = 4


class ByErrors(SAFE):
    """``judged``: those of who answers beside the fast learner, and of the fast learner."""

    def __init__(self, backbone: Backbone, settings: SafeSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.judged = ErrorSums(2)

    @property
    def lead(self) -> Tensor:
        """α_fast: ()."""
        return lead_weight(self.judged.sums)

    @factors_kept()  # judging asks for those of the same sums
    def solve(self, targets: Tensor, added: Features) -> Included:
        included = super().solve(targets, added)
        if self.sessions and self.settings.answer.statistics != "shared":
            self.judge(targets, added, included)
        return included

    def judge(self, targets: Tensor, added: Features, included: Included) -> None:
        """Note how far both that answer are wrong on some of the session's pictures."""
        rows = judges(targets, MAX_JUDGING_PICTURES)
        own = targets[rows]
        if len(torch.unique(own)) < MIN_JUDGING_CLASSES:
            return
        features = {name: f[rows] for name, f in added.items()}
        voices = self.voices(self.sessions + 1).values()
        left_out = LeftOut(own, one_of_each(own), included(features))
        logits = [voice.logits(features, left_out) for voice in voices]
        wanted = F.one_hot(own, logits[0].shape[1])
        self.judged.add(torch.stack([(z - wanted).square().sum() for z in logits]))

    def combine(self, slow: Tensor, fast: Tensor) -> Tensor:
        return torch.lerp(slow, fast, self.lead)

    def weights(self, logits: Mapping[str, Tensor]) -> dict[str, Tensor]:
        # logits may have left the device
        lead = self.lead.to(logits["fast"]) if self.sessions > 1 else 0.5
        fast = torch.ones_like(logits["fast"][:, 0]) * lead
        return {"slow": 1 - fast, "fast": fast}
