"""Decides: whether the untuned backbone answers in the slow learner's place from session 2 on.
By: pilots, which must gain 20 % of its error: they know half of the first classes, and a tuning
that gains less there often harms classes that come later.
Worth: SAFE is below the untuned backbone in 4 of 126 runs, at worst by 0.6, RanPAC in 39, by 6.6;
beside the fast learner in every run it is worth 0.2 less (docs/results.md).
"""

from collections.abc import Mapping

from torch import Tensor

from safecl.backbone.backbone import Backbone
from safecl.heads.reading import Reading
from safecl.heads.ridge import RidgeHead
from safecl.methods.beyond.following import Follows
from safecl.methods.beyond.pilots import Pilots, Tuned
from safecl.methods.experts import Expert
from safecl.methods.method import Fit, Included, More
from safecl.methods.parts import Parts, learned_from
from safecl.methods.settings.safe import SafeSettings
from safecl.methods.slow_fast import Features

MIN_PILOT_GAIN = 0.2  # share of the untuned backbone's error by which pilots must be better


class Untuned(Pilots, Follows):
    """A third expert. The tuned slow learner remains the teacher, and statistics follow from it."""

    grams = 3

    def __init__(self, backbone: Backbone, settings: SafeSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.ridge_untuned = RidgeHead(backbone.widths, settings.ridge, seed, backbone.device)

    @property
    def untuned(self) -> bool:
        """Whether it was asked for: then its features are kept, or, where what learning needs was
        left out, there is a head.
        """
        head = self.ridge_untuned
        classes = head.statistics.sums.shape[1] + head.weight.shape[1]
        return self.following.untuned.width > 0 or classes > 0

    def read(self, reading: Reading) -> None:
        super().read(reading)
        self.ridge_untuned.read(reading)

    def piloted(self, found: Tuned | None, fit: Fit) -> None:
        wanted = found is not None and fit.agree(found.gain < MIN_PILOT_GAIN)
        self.notes["untuned"] = wanted
        self.remember(self.backbone.width if wanted else 0)
        super().piloted(found, fit)

    def experts(self) -> dict[str, Expert]:
        found = super().experts()
        if not self.untuned:
            return found
        head = self.ridge_untuned
        return {
            **found,
            "untuned": Expert(
                "untuned", "ridge_untuned", {"untuned": self.backbone}, head, head.reading
            ),
        }

    def voices(self, learned: int) -> dict[str, Expert]:
        """The first session's classes are those that the slow learner is tuned for."""
        found = super().voices(learned)
        slow = found["untuned"] if self.untuned and learned > 1 else found["slow"]
        return {"slow": slow, "fast": found["fast"]}

    def add(self, targets: Tensor, features: Mapping[str, Tensor], fit: Fit) -> Features:
        added = super().add(targets, features, fit)
        if self.untuned:
            self.following.untuned.add(self.last(added["untuned"]), targets)
        return added

    def settle(self, learned: int, more: More | None = None) -> Included:
        included = super().settle(learned, more)
        if self.beside(learned) == "untuned":  # the slow learner answers no more
            self.ridge_slow.weight = self.ridge_slow.weight[:, :0]
        return included

    def parts(self) -> Parts:
        found = super().parts()
        return learned_from(
            found, {"following.untuned": ("ridge_untuned",)} if self.untuned else {}
        )
