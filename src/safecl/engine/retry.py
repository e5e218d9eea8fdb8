"""A phase that failed is trained again, each time more slowly, and at last without what it tunes.

It fails if its loss stops being finite, or, with ``train.guard``, if the features of a network that
it tunes are worse than before; the session's own pictures say so.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from safecl.heads.choose_beta import plain_errors
from safecl.heads.left_out import MIN_ERROR_CHANGE, judges
from safecl.learner import Learner
from safecl.methods.method import Judged

JUDGING_PICTURES = 64  # roughly: two or more per class


@dataclass(frozen=True)
class Attempt:
    """``share``: of the recipe's rate. ``holds``: what is tuned stays as it was."""

    share: float
    holds: bool = False

    @property
    def words(self) -> str:
        """What is said of it after one that failed."""
        return (
            "what is tuned stays as it was"
            if self.holds
            else f"again at {self.share:g} of the rate"
        )


SLOWER = (Attempt(1.0), Attempt(0.1), Attempt(0.01))
HELD = Attempt(SLOWER[-1].share, holds=True)


def retry(
    attempts: Sequence[Attempt],
    begin: int,
    train: Callable[[Attempt], str | None],
    undo: Callable[[str, Attempt], None],
) -> Attempt | None:
    """The first of the ``attempts`` from number ``begin`` on that succeeds; None if none does.

    ``train`` gives why an attempt failed, if it did; ``undo`` is told that, and which one follows.
    """
    for number, attempt in enumerate(attempts[begin:], begin):
        failure = train(attempt)
        if failure is None:
            return attempt
        if number + 1 < len(attempts):
            undo(failure, attempts[number + 1])
    return None


class Guard:
    """Compares the leave-one-out error of ridge regressions on what is tuned, on its own pictures,
    with that before.
    """

    def __init__(self, judged: list[Judged], images: list[Tensor], targets: Tensor) -> None:
        self._judged = judged
        self._images = images
        self._targets = targets
        self._start = [
            {k: v.clone() for k, v in each.tuned.state_dict().items()} for each in judged
        ]
        self._before = [self._errors(each) for each in judged]

    @classmethod
    def make(
        cls,
        module: nn.Module,
        judged: Judged | None,
        targets: Tensor,
        plain: Callable[[list[int]], list[Tensor]],
    ) -> Self | None:
        """Of the tuned learners in ``module``, or what is ``judged``; None without any, or with too
        few pictures. ``plain``: the plain views at some positions, in batches.
        """
        learners = [each for each in module.modules() if isinstance(each, Learner)]
        tuned = [each for each in learners if any(p.requires_grad for p in each.pet.parameters())]
        found = [Judged(each, each.features) for each in tuned] if judged is None else [judged]
        chosen = judges(targets, JUDGING_PICTURES)
        if not found or not len(chosen):
            return None
        return cls(found, plain(chosen.tolist()), targets[chosen])

    def worse(self) -> bool:
        """Whether any features are worse now than before by more than a little, or not finite."""
        pairs = zip(self._judged, self._before, strict=True)
        return any(risen(before, self._errors(each), self._targets) for each, before in pairs)

    @torch.no_grad()
    def hold(self) -> None:
        """Put all that is tuned back to what it was before the phase."""
        for each, start in zip(self._judged, self._start, strict=True):
            for name, value in each.tuned.state_dict().items():
                value.copy_(start[name])

    @torch.no_grad()
    def _errors(self, judged: Judged) -> Tensor:
        """Squared error on each picture that judges: (n,)."""
        training = judged.tuned.training
        judged.tuned.eval()
        features = torch.cat([judged.features(images) for images in self._images])
        judged.tuned.train(training)
        return plain_errors(features, self._targets)


def risen(before: Tensor, now: Tensor, targets: Tensor) -> bool:
    """Whether the mean of the errors (n,) has risen by more than a little, or is not finite.

    A little: as a share of the error of an answer that does not look at the picture.
    """
    trivial = F.one_hot(targets).float().var(dim=0, correction=0).sum()
    error = now.mean()
    limit = before.mean() + MIN_ERROR_CHANGE * float(trivial)
    return not (bool(error <= limit) and bool(error.isfinite()))
