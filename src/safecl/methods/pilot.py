"""What pictures that nobody has tuned on say about tuning: half of the first session, and later ones at their start."""

from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from safecl.heads import RidgeHead
from safecl.learner import Learner
from safecl.methods.method import Fit, Loss
from safecl.streams.stream import Session

SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)  # of a tuning that may be kept
SURE = 3.0  # standard errors by which another way must be better: many, because several ways are tried
FEWEST = 10  # pictures that can say anything
MOST = 256  # pictures that need be asked, or two of each class if there are that many classes
MATTERS = 0.05  # of the error: less than that is not worth a risk


def choose_tuning(
    session: Session, fit: Fit, pilot: Callable[[], Learner], losses: Sequence[Callable[[Learner], Loss]]
) -> tuple[int, float]:
    """Which of ``losses`` to tune with, and the share of the tuning to keep; in doubt the first, and all of it.

    Tuned on a few classes, a network can get worse at all others, and nobody can know beforehand which PET and which
    loss do so on which backbone. So pilots are tuned on one half of the classes, and the other half, which they have
    not seen, says what helps it: the squared errors of a ridge head on it that leaves out one picture at a time.
    """
    counts = Counter(session.train.labels)
    classes = [label for label in session.classes if counts[label] > 1]  # one picture left out leaves nothing
    halves = [session.part(classes[i::2]) for i in (0, 1)]
    if len(halves[1].classes) < 2 or sum(len(half.train) for half in halves) < FEWEST:
        return 0, 1.0
    pilots = [
        [_Pilot(pilot(), known, new, fit, loss, f"pilot{k * len(losses) + i}") for i, loss in enumerate(losses, 1)]
        for k, (known, new) in enumerate((halves, halves[::-1]))
    ]

    def errors(which: int, share: float) -> Tensor:
        return torch.cat([of_half[which].errors(share) for of_half in pilots])

    chosen, least = (0, 1.0), errors(0, 1.0)

    def consider(which: int, share: float) -> None:
        nonlocal chosen, least
        found = errors(which, share)
        if surely_less(found, least):
            chosen, least = (which, share), found

    for which in range(1, len(losses)):
        consider(which, 1.0)
    for share in SHARES[1:]:
        consider(chosen[0], share)
    return chosen


def helped(head: RidgeHead, before: Tensor, after: Tensor, targets: Tensor) -> bool:
    """Whether a tuning has surely helped pictures that it has not seen: their features (N, d) before and after it."""
    counts = targets.bincount()
    classes = int((counts > 1).sum())
    if classes < 2:
        return False
    order, firsts = targets.argsort(stable=True), counts.cumsum(dim=0) - counts
    rank = torch.empty_like(targets)  # of a picture among those of its class
    rank[order] = torch.arange(len(targets), device=targets.device) - firsts[targets[order]]
    asked = (counts[targets] > 1) & (rank < max(2, MOST // classes))
    if int(asked.sum()) < FEWEST:
        return False
    least, found = (head.leave_one_out(features[asked], targets[asked]) for features in (before, after))
    return surely_less(found, least, MATTERS)


def surely_less(found: Tensor, least: Tensor, by: float = 0.0) -> bool:
    """Whether errors (n,) are less than others on the same pictures, by more than chance and a share of the others."""
    gains = least - found
    return bool(gains.mean() > max(SURE * gains.std() / len(gains) ** 0.5, by * least.mean()))


class _Pilot:
    """A learner that is tuned on the classes of ``known`` and asked about those of ``new``."""

    def __init__(
        self, learner: Learner, known: Session, new: Session, fit: Fit, loss: Callable[[Learner], Loss], name: str
    ) -> None:
        self.learner, self.new, self.fit = learner, new, fit
        self.start = learner.tuning()
        fit(name, learner, known, loss(learner))
        self.end = learner.tuning()

    def errors(self, share: float) -> Tensor:
        """The squared error on each of the new pictures, with ``share`` of the tuning: (n,)."""
        self.learner.interpolate(self.start, self.end, share)
        targets, features = self.fit.features(self.new, self.learner)
        return self.learner.ridge.leave_one_out(features, targets)
