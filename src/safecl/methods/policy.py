"""What SAFE decides beyond its paper: which loss, which λ_cos, what share of a tuning is kept, and who answers."""

import copy
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor, nn

from safecl.backbone.backbone import Backbone
from safecl.heads.cosine import CosineHead
from safecl.heads.leave_one_out import MAX_JUDGING_PICTURES, MIN_ERROR_CHANGE, MIN_JUDGING_PICTURES, evenly, judges
from safecl.heads.protocol import Editable
from safecl.heads.ridge import RidgeHead
from safecl.learner import Learner, Reader
from safecl.methods.method import Batch, Fit
from safecl.methods.settings.safe import SafeSettings
from safecl.streams.stream import Session

MIN_GAIN = 0.01  # share of the untuned backbone's error by which that of a tuned learner must be less
# Share of the untuned backbone's error by which pilots must be better for the slow learner to answer: pilots know half
# of the first classes, and a tuning that gains less there often harms classes that come later.
MIN_PILOT_GAIN = 0.2
SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)  # of a tuning that may be kept
UNJUDGED_SHARE = 0.5  # of the slow learner's tuning on classes too few for pilots; two classes tune it little
SlowLoss: TypeAlias = Callable[[bool, Learner, CosineHead, Batch], dict[str, Tensor]]


class Policy(Editable, nn.Module):
    """Four answers; with ``method.pilot=0`` they are the constants of the paper.

    ``share`` (): of a tuning, that is kept; 1 without pilots. ``errors`` (3,): sums of squared errors on the pictures
    of later sessions before anything was learned from them, of the untuned backbone, the slow and the fast learner.
    They decide how is tuned and who answers, and stay when labels are corrected. ``judged`` (2,): likewise those of who
    answers beside the fast learner and of the fast learner, after the session, each picture left out.
    """

    by_difference: ClassVar[tuple[str, ...]] = ("errors", "judged")

    def __init__(self, settings: SafeSettings) -> None:
        super().__init__()
        self.settings = settings
        self.notes: dict[str, Any] = {}  # what was decided in this session
        self.share: Tensor = nn.Buffer(torch.ones(()))
        self.errors: Tensor = nn.Buffer(torch.zeros(3))
        self.judged: Tensor = nn.Buffer(torch.zeros(2))

    def transfers(
        self, slow: Learner, head: CosineHead, ridge: RidgeHead, loss: SlowLoss, session: Session, fit: Fit
    ) -> tuple[bool, float, bool]:
        """As set, or as pilots show: whether L_slow has its transfer terms, and the share of the tuning to keep.

        And whether the untuned backbone answers beside the fast learner, in place of the slow one, from session 2 on.
        """
        s = self.settings
        found = self.piloted(slow, head, ridge, loss, session, fit) if s.pilot else None
        few = (False, UNJUDGED_SHARE if len(session.classes) > 2 else 1.0, math.inf)
        transfer, share, gain = found or (few if s.pilot else (s.transfer.loss != "none", 1.0, math.inf))
        untuned = s.answer.statistics == "following" and fit.agree(gain < MIN_PILOT_GAIN) if found else False
        self.notes = {"pilots": found is not None, "transfer": transfer, "kept": share, "untuned": untuned}
        self.share = torch.full_like(self.share, share if found else 1.0)
        return transfer, share, untuned

    def piloted(
        self, slow: Learner, head: CosineHead, ridge: RidgeHead, loss: SlowLoss, session: Session, fit: Fit
    ) -> tuple[bool, float, float] | None:
        """Whether to transfer, the share of the tuning to keep, its gain over the untuned backbone; None: too few.

        Tuned on a few classes, a network can get worse at all others; which PET and loss do so depends on the backbone.
        So two pilots, with the transfer loss and without, are tuned on one half of the classes, and the other half
        judges them by the leave-one-out errors of a ridge head. The least error wins; half of the classes make a pilot
        worse than the session will be, so all of a tuning that is taken back must pay by ``MIN_ERROR_CHANGE``.
        """
        if not slow.tuning():  # without a PET nothing is tuned
            return None
        counts = Counter(session.train.labels)
        classes = [label for label in session.classes if counts[label] > 1]  # one picture left out leaves nothing
        tuned, judging = session.part(classes[::2]), session.part(classes[1::2])
        numbers = torch.tensor([classes.index(label) for label in judging.train.labels], dtype=torch.int64)
        judging = judging.only(evenly(numbers, MAX_JUDGING_PICTURES).tolist())
        if len(judging.classes) < 2 or len(tuned.train) + len(judging.train) < MIN_JUDGING_PICTURES:
            return None
        s, recipe = self.settings, fit.recipe()
        recipe = replace(recipe, epochs=max(1, round(s.pilot * recipe.epochs)), guard=False)  # a collapse is judged
        pilots = []  # both before the first question, so that the pictures of a half are read once
        for number, transfer in enumerate([False] if s.transfer.loss == "none" else [False, True], start=1):
            learner, own = slow.copy(), copy.deepcopy(head)
            start, parts = learner.tuning(), nn.ModuleList([learner, own])
            fit(f"pilot{number}", parts, tuned, partial(loss, transfer, learner, own), recipe=recipe)
            pilots.append((transfer, learner, start, learner.tuning()))
        choice, least, errors = (False, 1.0), math.inf, dict[tuple[bool, float], float]()
        for transfer, learner, start, end in pilots:
            for share in SHARES[:-1] if transfer else SHARES:  # without any tuning both are the same
                learner.interpolate(start, end, share)
                targets, features = fit.features(judging, Reader(learner, ridge.reading.once))
                error = errors[transfer, share] = float(ridge.leave_one_out(features, targets).mean())
                error *= 1 + MIN_ERROR_CHANGE * (1 - share)
                if fit.agree(error < least):
                    choice, least = (transfer, share), error
        return *choice, 1 - errors[choice] / max(errors[False, 0.0], torch.finfo(torch.float32).tiny)

    def lambda_cos(
        self, ridge: RidgeHead, ptm: Backbone, features: list[Tensor], targets: Tensor, session: Session, fit: Fit
    ) -> float:
        """λ_cos: as set, or 0 while unseen pictures show that the slow learner's tuning helps.

        ``features``: the fast learner's (N, d′), the slow one's, and the untuned backbone's, if they are known.
        """
        self.notes, s = {}, self.settings.guide
        decides = bool(s.lambda_cos) and s.teacher == "slow"
        if not self.settings.pilot or not (decides or len(features) > 2):
            return s.lambda_cos
        rows = judges(targets, MAX_JUDGING_PICTURES)
        if len(rows):
            found = [f[rows, : ridge.width] for f in features]
            if len(found) == 2:
                found += fit.features(session.only(rows.tolist()), Reader(ptm, ridge.reading.once))[1:]
            errors = [ridge.leave_one_out(f, targets[rows]).sum() for f in reversed(found)]
            self.errors = self.errors + torch.stack(errors).to(self.errors)
        counts = len(features) > 2 and self.settings.answer.aggregation == "errors"
        self.notes = {"helps": bool(self.fast_helps)} if counts else {}
        if decides:
            untuned, tuned, _ = map(float, self.errors)
            self.notes["released"] = fit.agree(tuned < (1 - MIN_GAIN) * untuned)
        return 0.0 if self.notes.get("released") else s.lambda_cos

    @property
    def fast_helps(self) -> Tensor:
        """Whether pictures that were new showed that the fast learner's tuning helps: (); true if none were judged."""
        return self.errors[2] <= (1 - MIN_GAIN) * self.errors[0]

    def kept(self, pictures: int, so_far: int) -> float:
        """What share of a session's tuning the fast learner keeps: 1, or the pilots' times that of its pictures."""
        if not self.settings.pilot or self.settings.guide.teacher != "slow":
            return 1.0
        self.notes["average"] = share = float(self.share) * (pictures / so_far)
        return share

    def merge(self, now: "Policy", before: "Policy", index: Tensor) -> None:
        """Add the errors that ``now`` has collected since it was ``before``; the share is that of the first session."""
        self.errors = self.errors + now.errors - before.errors
        self.judged = self.judged + now.judged - before.judged
