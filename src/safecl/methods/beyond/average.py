"""Decides: the share of a session's fast tuning that is kept.
By: the session's share of all pictures so far, so that the tuning is a mean over sessions.
Worth: not measured alone; sessions that count as four classes instead: +2.4 on `reg4_b`, −2.1 on
`a`, after fifty of two (docs/results.md).
"""

from safecl.methods.method import Fit, Loss
from safecl.methods.safe import SAFE
from safecl.streams.stream import Session


class Average(SAFE):
    """A fast learner that is guided by the slow one goes from mean to mean."""

    def tune(
        self,
        name: str,
        session: Session,
        fit: Fit,
        loss: Loss,
        share: float = 1.0,
    ) -> None:
        if name == "fast":
            share *= len(session.train) / int(self.w_slow.counts.sum())
            self.notes["average"] = share
        super().tune(name, session, fit, loss, share)
