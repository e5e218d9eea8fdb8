"""Decides: whether L_slow has its transfer terms, and the share of a tuning to keep.
By: pilots, tuned on half of the first classes with the terms and without, and the leave-one-out
errors of a ridge head on the other half.
Worth: not measured alone; tuning on ten classes can harm the others, RanPAC's by up to 6.6 points
(docs/results.md).
"""

import copy
import math
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.heads.cosine import CosineHead
from safecl.heads.left_out import (
    MAX_JUDGING_PICTURES,
    MIN_ERROR_CHANGE,
    MIN_JUDGING_PICTURES,
    evenly,
)
from safecl.heads.protocol import Editable
from safecl.heads.ridge import RidgeHead
from safecl.learner import Learner, Reader
from safecl.methods.method import Batch, Fit, Loss
from safecl.methods.safe import SAFE
from safecl.methods.settings.safe import SafeSettings
from safecl.streams.stream import Session

SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)  # of a tuning that may be kept
# of the slow learner's tuning on classes too few for pilots; two classes tune it little
UNJUDGED_SHARE = 0.5


class Tuned(NamedTuple):
    """What pilots found: whether the loss has its transfer terms, the share of the tuning to keep,
    and the share of the untuned backbone's error that is gained.
    """

    transfer: bool
    share: float
    gain: float


class Share(Editable, nn.Module):
    """The share that pilots chose, (): that of the first session, whatever is merged; 1 without
    pilots.
    """

    def __init__(self) -> None:
        super().__init__()
        self.chosen: Tensor = nn.Buffer(torch.ones(()))


class Pilots(SAFE):
    """The share holds for the slow learner, and for each session of a fast one that it guides."""

    def __init__(self, backbone: Backbone, settings: SafeSettings, seed: int = 0) -> None:
        super().__init__(backbone, settings, seed)
        self.share = Share()

    def tune(
        self,
        name: str,
        session: Session,
        fit: Fit,
        loss: Loss,
        share: float = 1.0,
    ) -> None:
        if name == "slow":
            found = tune_with_pilots(self, session, fit)
            few = Tuned(False, UNJUDGED_SHARE if len(session.classes) > 2 else 1.0, math.inf)
            tuned = found or few
            self.share.chosen = torch.full_like(self.share.chosen, found.share if found else 1.0)
            share *= tuned.share
            loss = loss if tuned.transfer else partial(classification, *self.pair(name))
            self.notes |= {"pilots": found is not None, "transfer": tuned.transfer, "kept": share}
            self.piloted(found, fit)
            if found is not None:
                self.notes["gain"] = round(found.gain, 4)
                fit.piloted(found.gain)
        elif self.settings.guide.teacher == "slow":
            share *= float(self.share.chosen)
        super().tune(name, session, fit, loss, share)

    def piloted(self, found: Tuned | None, fit: Fit) -> None:
        """For those who decide by what pilots ``found``; None: there were none."""


def tune_with_pilots(method: SAFE, session: Session, fit: Fit) -> Tuned | None:
    """Try to tune on one half of the classes, and judge by the other; None if there
    are too few.

    Tuned on a few classes, a network can get worse at all others; which PET and loss do so depends
    on the backbone. The least error wins; half of the classes make a pilot worse than the session
    will be, so all of a tuning that is taken back must pay by ``MIN_ERROR_CHANGE``.
    """
    slow = method.slow
    halves = split(session) if slow.tuning() else None  # without a PET nothing is tuned
    if halves is None:
        return None
    tuned, judging = halves
    usual = fit.recipe()
    epochs = max(1, round(method.settings.pilots.epochs * usual.epochs))
    recipe = replace(usual, epochs=epochs, guard=False)  # a collapse is judged
    kinds = [False] if method.settings.transfer.loss == "none" else [False, True]
    pilots = []  # both before the first question, so that the pictures of a half are read once
    for number, transfer in enumerate(kinds, start=1):
        learner = slow.copy()
        head = copy.deepcopy(method.w_slow)
        start = learner.tuning()
        loss = partial(method.slow_loss if transfer else classification, learner, head)
        fit(f"pilot{number}", nn.ModuleList([learner, head]), tuned, loss, recipe=recipe)
        pilots.append((transfer, learner, start, learner.tuning()))
    return best(pilots, method.ridge_slow, judging, fit)


def classification(learner: Learner, head: CosineHead, batch: Batch) -> dict[str, Tensor]:
    """L_cls alone, Eq. (4)."""
    return {"cls": F.cross_entropy(head(batch.features(learner)), batch.targets)}


def split(session: Session) -> tuple[Session, Session] | None:
    """The pictures of every other class, and some of each of the rest; None if they are too few."""
    counts = Counter(session.train.labels)
    # one picture left out leaves nothing
    classes = [label for label in session.classes if counts[label] > 1]
    tuned = session.part(classes[::2])
    judging = session.part(classes[1::2])
    numbers = [classes.index(label) for label in judging.train.labels]
    rows = evenly(torch.tensor(numbers, dtype=torch.int64), MAX_JUDGING_PICTURES)
    judging = judging.only(rows.tolist())
    few = len(tuned.train) + len(judging.train) < MIN_JUDGING_PICTURES
    return None if few or len(judging.classes) < 2 else (tuned, judging)


def best(
    pilots: list[tuple[bool, Learner, dict[str, Tensor], dict[str, Tensor]]],
    head: RidgeHead,
    judging: Session,
    fit: Fit,
) -> Tuned:
    """The pilot and the share of its tuning with the least error; ``pilots``: transfer, learner,
    its tuning before and after.
    """
    choice = (False, 1.0)
    least = math.inf
    errors = dict[tuple[bool, float], float]()
    for transfer, learner, start, end in pilots:
        # without any tuning both are the same
        for share in SHARES[:-1] if transfer else SHARES:
            learner.interpolate(start, end, share)
            targets, features = fit.features(judging, Reader(learner, head.reading.once))
            error = float(head.leave_one_out(features, targets).mean())
            errors[transfer, share] = error
            error *= 1 + MIN_ERROR_CHANGE * (1 - share)
            if fit.agree(error < least):
                choice = (transfer, share)
                least = error
    untuned = max(errors[False, 0.0], torch.finfo(torch.float32).tiny)
    return Tuned(*choice, gain=1 - errors[choice] / untuned)
