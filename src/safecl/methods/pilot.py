"""Pilots: short trainings on half of the first classes, which the other half judges."""

import copy
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from safecl.heads.cosine import CosineHead
from safecl.heads.left_out import FEWEST, surely_less
from safecl.heads.ridge import RidgeHead
from safecl.learner import Learner
from safecl.methods.method import Batch, Fit, Recipe
from safecl.streams.stream import Session

SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)  # of a tuning that may be kept
SlowLoss: TypeAlias = Callable[[bool, Learner, CosineHead, Batch], dict[str, Tensor]]


class Choice(NamedTuple):
    """How the slow learner is tuned: with the transfer loss or not, the share that is kept, whether pilots decided."""

    transfer: bool
    share: float = 1.0
    piloted: bool = False


def choose_tuning(
    slow: Learner,
    head: CosineHead,
    ridge: RidgeHead,
    loss: SlowLoss,
    wanted: bool,
    length: float,
    session: Session,
    fit: Fit,
) -> Choice:
    """Whether to use the transfer loss in the first session, if it is ``wanted``, and the share of the tuning to keep.

    Tuned on a few classes, a network can get worse at all others, and which PET and loss do so depends on the
    backbone. So pilots are tuned on one half of the classes, and those of the other half judge them: the squared errors
    of a ridge head that leaves out one picture at a time. Two pilots decide about the transfer loss. If the better one
    would have been better with less of its tuning, the other half of the classes is tuned as well, and both halves
    decide about the share. In doubt there is no transfer and all of the tuning is kept. A pilot has ``length`` times
    the epochs of the session.
    """
    if not slow.tuning():  # without a PET nothing is tuned
        return Choice(transfer=wanted)
    counts = Counter(session.train.labels)
    classes = [label for label in session.classes if counts[label] > 1]  # one picture left out leaves nothing
    one, other = session.part(classes[::2]), session.part(classes[1::2])
    if len(other.classes) < 2 or len(one.train) + len(other.train) < FEWEST:
        return Choice(transfer=False)
    epochs, numbers = max(1, round(length * fit.recipe().epochs)), count(1)
    recipe = replace(fit.recipe(), epochs=epochs, guard=False)  # what collapses is judged as it is

    def pilot(way: bool, tuned: Session, judging: Session) -> _Pilot:
        return _Pilot(slow, head, ridge, partial(loss, way), tuned, judging, fit, f"pilot{next(numbers)}", recipe)

    # Both before the first question, so that the pictures of a half are read once.
    pilots = {way: pilot(way, one, other) for way in ([False, True] if wanted else [False])}
    whole = {way: each.errors(1.0) for way, each in pilots.items()}
    way = wanted and fit.agree(surely_less(whole[True], whole[False]))
    first = {1.0: whole[way]} | {share: pilots[way].errors(share) for share in SHARES[1:]}
    if not fit.agree(min(float(first[share].mean()) for share in SHARES[1:]) < float(first[1.0].mean())):
        return Choice(way, piloted=True)
    second = pilot(way, other, one)
    kept, least = 1.0, torch.cat([first[1.0], second.errors(1.0)])
    for share in SHARES[1:]:
        found = torch.cat([first[share], second.errors(share)])
        if fit.agree(surely_less(found, least)):
            kept, least = share, found
    return Choice(way, kept, piloted=True)


class _Pilot:
    """A copy of the slow learner that is tuned on the classes of ``tuned`` and judged by those of ``judging``."""

    def __init__(
        self,
        slow: Learner,
        head: CosineHead,
        ridge: RidgeHead,
        loss: Callable[[Learner, CosineHead, Batch], dict[str, Tensor]],
        tuned: Session,
        judging: Session,
        fit: Fit,
        name: str,
        recipe: Recipe,
    ) -> None:
        self.learner, self.ridge, self.judging, self.fit = slow.copy(), ridge, judging, fit
        own, self.start = copy.deepcopy(head), self.learner.tuning()
        fit(name, nn.ModuleList([self.learner, own]), tuned, partial(loss, self.learner, own), recipe=recipe)
        self.end = self.learner.tuning()

    def errors(self, share: float) -> Tensor:
        """The squared error on each picture that judges, with ``share`` of the tuning: (n,)."""
        self.learner.interpolate(self.start, self.end, share)
        targets, features = self.fit.features(self.judging, self.learner)
        return self.ridge.leave_one_out(features, targets)
