"""Pilots: short trainings on half of the first classes, which the other half judges."""

import copy
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from safecl.methods.guards import FEWEST, SHARES, surely_less
from safecl.methods.method import Fit
from safecl.streams.stream import Session

if TYPE_CHECKING:
    from safecl.methods.safe import SAFE


def choose_tuning(method: "SAFE", session: Session, fit: Fit) -> tuple[bool, float]:
    """Whether to use the transfer loss in the first session, and the share of the tuning to keep.

    Tuned on a few classes, a network can get worse at all others, and which PET and loss do so depends on the
    backbone. So pilots are tuned on one half of the classes, with and without the transfer loss, and the classes of
    the other half judge them: the squared errors of a ridge head that leaves out one picture at a time. In doubt there
    is no transfer and all of the tuning is kept.
    """
    wanted = method.settings.transfer != "none"
    method.notes["pilots"] = False
    if not method.settings.pilot or not method.slow.tuning():  # without a PET nothing is tuned
        return wanted, 1.0
    counts = Counter(session.train.labels)
    classes = [label for label in session.classes if counts[label] > 1]  # one picture left out leaves nothing
    one, other = session.part(classes[::2]), session.part(classes[1::2])
    if len(other.classes) < 2 or len(one.train) + len(other.train) < FEWEST:
        return False, 1.0
    ways = [False, True] if wanted else [False]
    pilots = [  # half by half, so that the pictures of a half are read once for all of its pilots
        {way: _Pilot(method, way, tuned, judging, fit, f"pilot{k * len(ways) + i}") for i, way in enumerate(ways, 1)}
        for k, (tuned, judging) in enumerate(((one, other), (other, one)))
    ]

    def errors(way: bool, share: float) -> Tensor:
        return torch.cat([of_half[way].errors(share) for of_half in pilots])

    chosen, least = (False, 1.0), errors(False, 1.0)

    def consider(way: bool, share: float) -> None:
        nonlocal chosen, least
        found = errors(way, share)
        if surely_less(found, least):
            chosen, least = (way, share), found

    for way in ways[1:]:
        consider(way, 1.0)
    for share in SHARES[1:]:
        consider(chosen[0], share)
    method.notes["pilots"] = True
    return chosen


class _Pilot:
    """A copy of the slow learner that is tuned on the classes of ``tuned`` and judged by those of ``judging``."""

    def __init__(self, method: "SAFE", transfer: bool, tuned: Session, judging: Session, fit: Fit, name: str) -> None:
        self.learner, self.ridge, self.judging, self.fit = method.slow.copy(), method.ridge_slow, judging, fit
        head, self.start = copy.deepcopy(method.w_slow), self.learner.tuning()
        loss = partial(method.slow_loss, transfer, self.learner, head)
        fit(name, nn.ModuleList([self.learner, head]), tuned, loss)
        self.end = self.learner.tuning()

    def errors(self, share: float) -> Tensor:
        """The squared error on each picture that judges, with ``share`` of the tuning: (n,)."""
        self.learner.interpolate(self.start, self.end, share)
        targets, features = self.fit.features(self.judging, self.learner)
        return self.ridge.leave_one_out(features, targets)
