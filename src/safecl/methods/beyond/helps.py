"""Decides: how much the fast learner may count beside the untuned backbone: half, or nothing.
By: pictures that were new: nothing unless the fast learner's tuning lowers their error by 1 %.
Worth: without it 13 of 121 runs were below the untuned backbone, with it 4 of 126; the mean is 0.1
lower (docs/results.md).
"""

from collections.abc import Mapping

from torch import Tensor

from safecl.methods.beyond.by_errors import ByErrors
from safecl.methods.beyond.new_pictures import MIN_GAIN, NewPictures
from safecl.methods.beyond.untuned import Untuned
from safecl.methods.method import Fit
from safecl.streams.stream import Session

MOST = 0.5  # that the fast learner counts beside the untuned backbone


class Helps(ByErrors, Untuned, NewPictures):
    """Errors are judged on classes that the fast learner has just been tuned on; it is worse on
    others.
    """

    def asks_new_pictures(self) -> bool:
        return self.untuned or super().asks_new_pictures()

    def guidance(
        self, before: Mapping[str, Tensor], targets: Tensor, session: Session, fit: Fit
    ) -> float:
        held = super().guidance(before, targets, session, fit)
        if self.untuned:
            self.notes["helps"] = bool(self.fast_helps)
        return held

    @property
    def fast_helps(self) -> Tensor:
        """Whether new pictures showed that the fast learner's tuning helps: (); true if none were
        judged.
        """
        untuned, _, fast = self.new_pictures.sums
        helps: Tensor = fast <= (1 - MIN_GAIN) * untuned
        return helps

    @property
    def lead(self) -> Tensor:
        lead = super().lead
        beside_untuned = self.beside(self.sessions) == "untuned"
        return lead.clamp(max=MOST) * self.fast_helps if beside_untuned else lead
