"""Pilots: short trainings on half of the first classes, which the other half judges."""

import copy
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from safecl.heads.cosine import CosineHead
from safecl.heads.leave_one_out import MAX_JUDGING_PICTURES, MIN_ERROR_CHANGE, MIN_JUDGING_PICTURES, evenly
from safecl.heads.ridge import RidgeHead
from safecl.learner import Learner
from safecl.methods.method import Batch, Fit, Recipe
from safecl.streams.stream import Session

SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)  # of a tuning that may be kept
SlowLoss: TypeAlias = Callable[[bool, Learner, CosineHead, Batch], dict[str, Tensor]]


class Choice(NamedTuple):
    """With the transfer loss or not, the share of a tuning that is kept, and whether pilots decided."""

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
    backbone. So two pilots, with the transfer loss and without, are tuned on one half of the classes, and those of the
    other half judge them: the squared errors of a ridge head that leaves out one picture at a time. The loss and share
    with the least error are taken; half of the classes make a pilot worse than the session will be, so all of a tuning
    that is taken back must pay by ``MIN_ERROR_CHANGE``. A pilot has ``length`` times the epochs of the session.
    """
    if not slow.tuning():  # without a PET nothing is tuned
        return Choice(transfer=wanted)
    counts = Counter(session.train.labels)
    classes = [label for label in session.classes if counts[label] > 1]  # one picture left out leaves nothing
    tuned, judging = session.part(classes[::2]), session.part(classes[1::2])
    index = {label: i for i, label in enumerate(classes)}
    numbers = torch.tensor([index[label] for label in judging.train.labels], dtype=torch.int64)
    judging = judging.only(evenly(numbers, MAX_JUDGING_PICTURES).tolist())
    if len(judging.classes) < 2 or len(tuned.train) + len(judging.train) < MIN_JUDGING_PICTURES:
        return Choice(transfer=False)
    recipe = pilot_recipe(fit, length)
    # Both before the first question, so that the pictures of a half are read once.
    pilots = [
        (transfer, Pilot(slow, head, ridge, partial(loss, transfer), tuned, judging, fit, f"pilot{number}", recipe))
        for number, transfer in enumerate([False, True] if wanted else [False], start=1)
    ]
    choice, least = Choice(transfer=False, piloted=True), math.inf
    for transfer, pilot in pilots:
        for share in SHARES[:-1] if transfer else SHARES:  # without any tuning both are the same
            error = weighed(float(pilot.errors(share).mean()), share)
            if fit.agree(error < least):
                choice, least = Choice(transfer, share, piloted=True), error
    return choice


def pilot_recipe(fit: Fit, length: float) -> Recipe:
    """That of the session with ``length`` times its epochs, and without a guard: what collapses is judged as it is."""
    return replace(fit.recipe(), epochs=max(1, round(length * fit.recipe().epochs)), guard=False)


def weighed(error: float, share: float, pays: float = MIN_ERROR_CHANGE) -> float:
    """The error with ``share`` of a tuning, raised so that all that is taken back must pay by ``pays``."""
    return error * (1 + pays * (1 - share))


class Pilot:
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
