"""Decides: whether λ_cos is released, that is L_cos dropped for a session.
By: pictures that were new: the slow learner's tuning lowers their error by 1 % or more.
Worth: not measured alone; the cells of docs/results.md all have it.
"""

from collections.abc import Mapping

from torch import Tensor

from safecl.methods.beyond.new_pictures import MIN_GAIN, NewPictures
from safecl.methods.method import Fit
from safecl.streams.stream import Session


class Release(NewPictures):
    """A slow learner that serves pictures it has never seen needs no fast one held to it."""

    def asks_new_pictures(self) -> bool:
        return True

    def guidance(
        self, before: Mapping[str, Tensor], targets: Tensor, session: Session, fit: Fit
    ) -> float:
        held = super().guidance(before, targets, session, fit)
        untuned, tuned, _ = map(float, self.new_pictures.sums)
        self.notes["released"] = fit.agree(tuned < (1 - MIN_GAIN) * untuned)
        return 0.0 if self.notes["released"] else held
