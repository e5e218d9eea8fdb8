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
from safecl.methods.method import Batch, Fit
from safecl.streams.stream import Session

SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)  # of a tuning that may be kept
SlowLoss: TypeAlias = Callable[[bool, Learner, CosineHead, Batch], dict[str, Tensor]]


class Choice(NamedTuple):
    """With the transfer loss or not, the share of a tuning that is kept, and whether pilots decided."""

    transfer: bool
    share: float = 1.0
    piloted: bool = False


def choose_tuning(
    slow: Learner, head: CosineHead, ridge: RidgeHead, loss: SlowLoss, wanted: bool, length: float,
    session: Session, fit: Fit,
) -> Choice:  # fmt: skip
    """Whether to use the transfer loss in the first session, if it is ``wanted``, and the share of the tuning to keep.

    Tuned on a few classes, a network can get worse at all others, and which PET and loss do so depends on the
    backbone. So two pilots, with the transfer loss and without, are tuned on one half of the classes, and those of the
    other half judge them: the squared errors of a ridge head that leaves out one picture at a time. The loss and share
    with the least error are taken; half of the classes make a pilot worse than the session will be, so all of a tuning
    that is taken back must pay by ``MIN_ERROR_CHANGE``. A pilot has ``length`` times the epochs of the session, and no
    guard: what collapses is judged as it is.
    """
    if not slow.tuning():  # without a PET nothing is tuned
        return Choice(transfer=wanted)
    counts = Counter(session.train.labels)
    classes = [label for label in session.classes if counts[label] > 1]  # one picture left out leaves nothing
    tuned, judging = session.part(classes[::2]), session.part(classes[1::2])
    numbers = torch.tensor([classes.index(label) for label in judging.train.labels], dtype=torch.int64)
    judging = judging.only(evenly(numbers, MAX_JUDGING_PICTURES).tolist())
    if len(judging.classes) < 2 or len(tuned.train) + len(judging.train) < MIN_JUDGING_PICTURES:
        return Choice(transfer=False)
    recipe = replace(fit.recipe(), epochs=max(1, round(length * fit.recipe().epochs)), guard=False)
    pilots = []  # both before the first question, so that the pictures of a half are read once
    for number, transfer in enumerate([False, True] if wanted else [False], start=1):
        learner, own = slow.copy(), copy.deepcopy(head)
        start, parts = learner.tuning(), nn.ModuleList([learner, own])
        fit(f"pilot{number}", parts, tuned, partial(loss, transfer, learner, own), recipe=recipe)
        pilots.append((transfer, learner, start, learner.tuning()))
    choice, least = Choice(transfer=False, piloted=True), math.inf
    for transfer, learner, start, end in pilots:
        for share in SHARES[:-1] if transfer else SHARES:  # without any tuning both are the same
            learner.interpolate(start, end, share)
            targets, features = fit.features(judging, learner)
            error = float(ridge.leave_one_out(features, targets).mean()) * (1 + MIN_ERROR_CHANGE * (1 - share))
            if fit.agree(error < least):
                choice, least = Choice(transfer, share, piloted=True), error
    return choice
